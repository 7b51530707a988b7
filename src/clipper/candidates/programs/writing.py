"""From samples to jobs: one for all samples of one shape, with the sentences that tell them apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clipper.arguments import as_list, shown
from clipper.candidates.kinds import Kind
from clipper.candidates.programs.wording import Sentence, readable, slot_of, term
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

    def job(self, labels: Labels, kinds: tuple[Kind, ...]) -> dict[str, Any]:
        """The shape as the worker reads it: the first label of each slot and the atoms of all, facts and sentences."""
        slots = []
        for kind, slot in zip(self.kinds(kinds), map(slot_of, self.slots), strict=True):
            slots.append({"start": kind.start, "atoms": [slot.atom(term(label)) for label in labels[kind.name]]})
        return {"slots": slots, "facts": self.facts, "sentences": self.sentences}

    def kinds(self, kinds: tuple[Kind, ...]) -> list[Kind]:
        """The kind of each slot."""
        by_name = {kind.name: kind for kind in kinds}
        return [by_name[slot_of(text).kind] for text in self.slots]

    def where(self, line: int) -> str | None:
        """What stands in a line of the worker's text, counted from 1: slots, facts, sentences; None past these."""
        place = line - 1 - len(self.slots)
        if place < 0:
            return f"slot {self.slots[line - 1]!r} of sample {self.samples[0]}"
        if place == 0:
            return f"the facts of sample {self.samples[0]}"
        return self.name(place - 1) if place <= len(self.sentences) else None

    def name(self, sentence: int) -> str:
        """What to call a sentence."""
        return f"sample {self.samples[sentence]}, {shown(self.sentences[sentence])}"


def shapes_of(samples: Any, slots: Sequence[str], labels: Labels) -> tuple[list[Shape], list[tuple[int, int]]]:
    """The distinct shapes, and for each sample its shape and the place of its sentence there."""
    shapes: dict[tuple[tuple[str, ...], str], tuple[int, Shape]] = {}
    known: dict[tuple[int, str], int] = {}
    places = []
    for i, sample in enumerate(as_list(samples, "samples, a sentence each,")):
        if not isinstance(sample, Sentence | str):
            raise InputError(f"expected sample {i} as a Sentence or its text, got {shown(sample)}")
        sentence = sample if isinstance(sample, Sentence) else Sentence(readable(sample, f"the sentence of sample {i}"))
        own = tuple(sentence.slots) or tuple(slots)
        key = own, sentence.facts
        if key not in shapes:
            _check_slots(own, labels, i)
            shapes[key] = len(shapes), Shape(*key)
        number, shape = shapes[key]
        body = sentence.text.strip()
        if (number, body) not in known:
            known[number, body] = len(shape.sentences)
            shape.sentences.append(body)
            shape.samples.append(i)
        places.append((number, known[number, body]))
    if not places:
        raise InputError("expected at least one sample, got none")
    return [shape for _, shape in shapes.values()], places


def _check_slots(slots: tuple[str, ...], labels: Labels, sample: int) -> None:
    if not slots:
        raise InputError(
            f'sample {sample} has no slots; give it some, Sentence(…, slots=["name(o1, _)"]), or slots= for all samples'
        )
    read = [slot_of(text) for text in slots]
    for text, slot in zip(slots, read, strict=True):
        if slot.kind not in labels:
            raise InputError(
                f"slot {text!r} of sample {sample} is no label atom: the labels are of {', '.join(map(repr, labels))}; "
                f"add labels={{{slot.kind!r}: […]}} or correct the slot"
            )
    if len(set(read)) < len(read):
        raise InputError(f"expected different slots, got one twice in sample {sample}: {', '.join(slots)}")
