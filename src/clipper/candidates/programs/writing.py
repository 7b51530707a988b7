"""From samples to what clingo reads: one text for all samples of one shape, a line that tells their sentences apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from clipper.candidates.kinds import Kind
from clipper.candidates.programs.wording import Sentence, slot_of, term
from clipper.candidates.programs.worker import ASKED, HOLDS, LABEL
from clipper.errors import InputError

Labels = Mapping[str, Sequence[str | int]]


@dataclass(eq=False)
class Shape:
    """Samples with the same slots and facts: they are grounded together."""

    slots: tuple[str, ...]
    facts: str
    sentences: list[str] = field(default_factory=list)
    """The distinct ones."""
    samples: list[int] = field(default_factory=list)
    """The first sample of each sentence."""

    def text(self, labels: Labels, kinds: tuple[Kind, ...]) -> str:
        """The shape as a logic program: each slot has one label, and which sentences hold."""
        lines = [*self._slots(labels, kinds), self.facts.replace("\n", " "), "#defined __end_of_facts/0."]
        lines += [f"{HOLDS}({i}) :- {ASKED}({i}){', ' if body else ''}{body}." for i, body in enumerate(self.sentences)]
        asked = f"#external {ASKED}(0..{len(self.sentences) - 1})."
        return "\n".join([*lines, asked, f"#show S*{kinds[-1].stop}+L : {LABEL}(S,L).", f"#project {LABEL}/2."])

    def where(self, line: int) -> str | None:
        """What stands in a line of the text, counted from 1; None where it is no sample's own."""
        place = line - 3 - len(self.slots)
        if place in (-2, -1):
            return f"the facts of sample {self.samples[0]}"
        return self.name(place) if 0 <= place < len(self.sentences) else None

    def name(self, sentence: int) -> str:
        """What to call a sentence."""
        return f"sample {self.samples[sentence]}, {self.sentences[sentence]!r}"

    def _slots(self, labels: Labels, kinds: tuple[Kind, ...]) -> list[str]:
        """One line for each slot: the choice of its label, and the label atom that the theory knows."""
        lines = []
        for place, slot in enumerate(map(slot_of, self.slots)):
            kind = next(kind for kind in kinds if kind.name == slot.kind)
            choice = f"{{ {LABEL}({place},{kind.start}..{kind.stop - 1}) }} = 1."
            atoms = (
                f"{slot.atom(term(label))} :- {LABEL}({place},{kind.start + i})."
                for i, label in enumerate(labels[slot.kind])
            )
            lines.append(" ".join([choice, *atoms]))
        return lines


def shapes_of(
    samples: Sequence[Sentence | str], slots: Sequence[str], labels: Labels
) -> tuple[list[Shape], list[tuple[int, int]]]:
    """The distinct shapes, and for each sample its shape and the place of its sentence there."""
    shapes: dict[tuple[tuple[str, ...], str], tuple[int, Shape]] = {}
    known: dict[tuple[int, str], int] = {}
    places = []
    for i, sample in enumerate(samples):
        sentence = Sentence(sample) if isinstance(sample, str) else sample
        own = tuple(sentence.slots) or tuple(slots)
        _check_slots(own, labels, i)
        key = own, sentence.facts
        number, shape = shapes.setdefault(key, (len(shapes), Shape(*key)))
        body = " ".join(sentence.text.split()).removesuffix(".")
        if (number, body) not in known:
            known[number, body] = len(shape.sentences)
            shape.sentences.append(body)
            shape.samples.append(i)
        places.append((number, known[number, body]))
    return [shape for _, shape in shapes.values()], places


def _check_slots(slots: tuple[str, ...], labels: Labels, sample: int) -> None:
    if not slots:
        raise InputError(
            f'sample {sample} has no slots; give it some, Sentence(…, slots=["name(o1, _)"]), or slots= for all samples'
        )
    for text in slots:
        kind = slot_of(text).kind
        if kind not in labels:
            raise InputError(
                f"slot {text!r} of sample {sample} is no label atom: the labels are of {', '.join(map(repr, labels))}; "
                f"add labels={{{kind!r}: […]}} or correct the slot"
            )
    if len(set(slots)) < len(slots):
        raise InputError(f"expected different slots, got one twice in sample {sample}: {', '.join(slots)}")
