"""Program: background knowledge as a logic program, and the labels that satisfy a sentence about each sample.

This file does not depend on networks; clingo runs in a separate process.
"""

from __future__ import annotations

import json
import math
import numbers
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clipper.arguments import as_list, shown, whole_number
from clipper.candidates import clingo_worker
from clipper.candidates.abduction import BUDGET
from clipper.candidates.kinds import Kind, kinds_of, sizes_of
from clipper.candidates.table import Candidates
from clipper.errors import BudgetError, InputError, SolverError, require
from clipper.files import read_text

PREDICATE = re.compile(r"_*[a-z][A-Za-z0-9_']*")
"""The names of predicates and constants."""
_SLOT = re.compile(rf"\s*({PREDICATE.pattern})\s*\((.*)\)\s*", re.DOTALL)
_PART = re.compile(r'"(?:\\.|[^"\\])*"|.', re.DOTALL)
_APART = re.compile(r'"(?:\\.|[^"\\])*"|%\*.*?\*%|%[^\n]*', re.DOTALL)
"""Strings and comments, which are not searched for keywords."""
TIME_LIMIT = 60.0
"""Default time limit of a theory, in seconds."""
MEMORY = 4_000_000_000
"""Largest memory of clingo's process, in bytes."""
LONGEST = 1e9
"""Time limits above this, in seconds, count as infinite."""
_SHOWN_MESSAGES = 20
"""Largest number of clingo's messages in an error."""
_LARGE = re.compile(r"(?<![\w'])\d{10,}")
_LARGEST = 2**31 - 1
"""The largest number in clingo, which has 32 bits; clingo truncates larger numbers without a warning."""


@dataclass(frozen=True)
class Sentence:
    """What you know about one sample: a sentence that its labels satisfy, and facts and slots of this sample.

    Examples:
        >>> Sentence("name(o1, animal), rel(on, o1, O2), not name(O2, dog)", slots=["name(o1, _)", "rel(_, o1, o2)"])
        Sentence(text='name(o1, animal), rel(on, o1, O2), not name(O2, dog)', facts='', slots=('name(o1, _)', 'rel(_, o1, o2)'))

    Attributes:
        text: the body of a rule in clingo's language; free variables are existential, "not" negates.
        facts: facts, or rules, that hold for this sample only.
        slots: the label atom of each slot, with `_` for the label: "name(o1, _)"; empty for the slots of the `Program`.
    """  # noqa: E501

    text: str
    facts: str = ""
    slots: Sequence[str] = ()

    def __post_init__(self) -> None:
        readable(self.text, "a sentence")
        readable(self.facts, "the facts of a sentence")
        object.__setattr__(self, "slots", readable_slots(self.slots))


@dataclass(frozen=True)
class Slot:
    """A label atom without its label.

    Attributes:
        kind: the predicate, which is also the kind of label.
        before: the arguments before the label, with their commas.
        after: the arguments after the label, with their commas.
    """

    kind: str
    before: str
    after: str

    def atom(self, label: str) -> str:
        """The atom with a label.

        Examples:
            >>> slot_of("rel(_, o1, o2)").atom("on")
            'rel(on,o1,o2)'
        """
        return f"{self.kind}({self.before}{label}{self.after})"


def readable(text: Any, what: str, *, includes: bool = False) -> str:
    """The text, checked: clingo can read it unchanged.

    Args:
        text: text in clingo's language.
        what: what the text is, for messages.
        includes: whether the text may include files.

    Raises:
        InputError: if clingo cannot read it.
    """
    if not isinstance(text, str):
        raise InputError(f"expected {what} as text in clingo's language, got {shown(text)}")
    _check_letters(text, what)
    bare = _APART.sub(" ", text)
    if "#include" in bare and not includes:
        raise InputError(f"{what} includes a file; only a theory in a file can do that: pass it as a Path")
    large = next((number for number in _LARGE.findall(bare) if int(number[:20]) > _LARGEST), None)
    if large is not None:
        raise InputError(
            f"expected numbers up to {_LARGEST:,} in {what}, clingo knows no larger ones, got {large[:40]}"
        )
    return text


def _check_letters(text: str, what: str) -> None:
    if "\0" in text or (not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text)):
        raise InputError(f"expected {what} in plain Unicode, got a NUL or half of a surrogate pair in {shown(text)}")


def readable_slots(slots: Any) -> tuple[str, ...]:
    """Texts, one for each slot."""
    return tuple(readable(slot, "a slot") for slot in as_list(slots, 'slots such as ["name(o1, _)"]'))


def slot_of(text: str) -> Slot:
    """Read a slot such as "name(o1, _)": an atom with exactly one open argument.

    Examples:
        >>> slot_of('said("a, b", f(x, y), _)')
        Slot(kind='said', before='"a, b",f(x, y),', after='')
    """
    match = _SLOT.fullmatch(text)
    arguments = _arguments(match[2]) if match else []
    if not match or arguments.count("_") != 1:
        raise InputError(
            f'expected a slot as a label atom with one open argument, such as "name(o1, _)" or "rel(_, o1, o2)", '
            f"got {shown(text)}"
        )
    place = arguments.index("_")
    before, after = arguments[:place], arguments[place + 1 :]
    return Slot(match[1], "".join(f"{part}," for part in before), "".join(f",{part}" for part in after))


def _arguments(text: str) -> list[str]:
    """The arguments of an atom: the text between commas that are neither in a string nor in brackets."""
    found, depth = [""], 0
    for part in _PART.findall(text):
        depth += (part == "(") - (part == ")")
        if part == "," and depth == 0:
            found.append("")
        else:
            found[-1] += part
    return [argument.strip() for argument in found]


def term(value: str | int) -> str:
    """A label in clingo's syntax: numbers and constants unchanged, other text in quotes.

    Examples:
        >>> [term(7), term("dog"), term("in front of")]
        ['7', 'dog', '"in front of"']
    """
    if not isinstance(value, str):
        return str(whole_number(value, "a numeric label", -_LARGEST, _LARGEST))
    _check_letters(value, "a label")
    if PREDICATE.fullmatch(value) and value != "not":
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


Labels = Mapping[str, Sequence[str | int]]


@dataclass(eq=False)
class Shape:
    """Samples with the same slots and facts, which are grounded together.

    Attributes:
        slots: the slots.
        facts: the facts.
        sentences: the distinct sentences.
        samples: the first sample with each sentence.
    """

    slots: tuple[str, ...]
    facts: str
    sentences: list[str] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)

    def job(self, labels: Labels, kinds: tuple[Kind, ...]) -> dict[str, Any]:
        """The shape as a dictionary for the worker: the first label and the atoms of each slot, facts and sentences."""
        start = {kind.name: kind.start for kind in kinds}
        slots = [
            {"start": start[slot.kind], "atoms": [slot.atom(term(label)) for label in labels[slot.kind]]}
            for slot in map(slot_of, self.slots)
        ]
        return {"slots": slots, "facts": self.facts, "sentences": self.sentences}

    def where(self, line: int) -> str | None:
        """The slot, facts or sentence in a line of the worker's text, counted from 1, for messages; None past these."""
        place = line - 1 - len(self.slots)
        if place < 0:
            return f"slot {self.slots[line - 1]!r} of sample {self.samples[0]}"
        if place == 0:
            return f"the facts of sample {self.samples[0]}"
        return self.name(place - 1) if place <= len(self.sentences) else None

    def name(self, sentence: int) -> str:
        """The name of a sentence in messages."""
        return f"sample {self.samples[sentence]}, {shown(self.sentences[sentence])}"


def shapes_of(samples: Any, slots: Sequence[str], labels: Labels) -> tuple[list[Shape], list[tuple[int, int]]]:
    """The distinct shapes, and for each sample the index of its shape and of its sentence in it.

    Args:
        samples: a `Sentence` for each sample, or its text.
        slots: the slots of samples whose sentence has none.
        labels: the labels of each kind, by predicate.

    Raises:
        InputError: if a sample is not a sentence, or its slots do not fit the labels.
    """
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
                f"slot {text!r} of sample {sample} is not a label atom: labels are of {', '.join(map(repr, labels))}; "
                f"add labels={{{slot.kind!r}: […]}} or correct the slot"
            )
    if len(set(read)) < len(read):
        raise InputError(f"expected different slots, got one twice in sample {sample}: {', '.join(slots)}")


Answers = dict[tuple[int, int], np.ndarray]
"""The labels of each shape and sentence, `(rows, slots)`, at least one row each."""


def answers(theory: str | Path, shapes: Sequence[Shape], job: dict[str, Any], time_limit: float) -> Answers:
    """Run a job in clingo's process. Errors of the theory contain clingo's own line and message.

    Args:
        theory: the text of the program, or the path of its file.
        shapes: the shapes of the samples.
        job: the job for the worker, without the theory.
        time_limit: seconds for the whole job.

    Raises:
        InputError: if the theory or a sentence is wrong, or no labels satisfy a sentence.
        BudgetError: if clingo takes too much time or memory, or there are too many candidates.
        SolverError: if clingo's process fails.
    """
    require("clingo", extra="logic")
    own = str(theory) if isinstance(theory, Path) else "theory"
    with tempfile.TemporaryDirectory() as folder:
        path, inside = _file_of(theory, Path(folder).resolve())
        job = {**job, "theory": str(path), "folder": inside, "memory": MEMORY}
        done, late = _run(json.dumps(job), time_limit)
        frames = list(_frames(done.stdout, cut=late or done.returncode != 0))
        notes: dict[int, str] = {}
        for frame, _ in frames:
            shape = shapes[frame["group"]]
            if "refused" in frame:
                raise InputError(_refusal(frame, shape, path, own))
            if frame.get("messages"):
                notes[frame["group"]] = _explained(frame["messages"], shape, path, own)
            _check(frame, shape, notes.get(frame["group"], ""))
        if late:
            raise BudgetError(_too_late(frames, shapes, time_limit))
        if done.returncode:
            last = done.stderr.decode(errors="replace").strip()[-500:] or "no message"
            raise SolverError(f"clingo's process ended with exit code {done.returncode} and without an answer: {last}")
    found = [(frame, codes, shapes[frame["group"]]) for frame, codes in frames if "rows" in frame]
    return {(frame["group"], frame["sentence"]): _rows(frame, codes, shape, job) for frame, codes, shape in found}


def _rows(frame: dict[str, Any], codes: np.ndarray, shape: Shape, job: dict[str, Any]) -> np.ndarray:
    """The labels in an answer, `(rows, slots)`, or for "brave" slot and label, `(rows, 2)`."""
    brave, slots = job["mode"] == "brave", len(shape.slots)
    slot, label = np.divmod(codes.reshape(-1, 1 if brave else slots), job["classes"])
    if not brave and (slot != np.arange(slots)).any():
        raise SolverError(f"{shape.name(frame['sentence'])}: clingo's answer is not one label per slot")
    return np.concatenate([slot, label], 1) if brave else label


def _file_of(theory: str | Path, folder: Path) -> tuple[Path, str | None]:
    """The file of a theory, and the folder whose files it may include."""
    if isinstance(theory, Path):
        readable(read_text(theory, "the theory"), f"the theory {theory}", includes=True)
        path = theory.resolve()
        return path, str(path.parent)
    path = folder / "theory.lp"
    path.write_text(theory, encoding="utf-8", newline="\n")
    return path, None


def _run(job: str, time_limit: float) -> tuple[subprocess.CompletedProcess[bytes], bool]:
    command = [sys.executable, clingo_worker.__file__]
    limit = None if time_limit > LONGEST else time_limit
    try:
        return subprocess.run(command, input=job.encode(), capture_output=True, timeout=limit, check=False), False
    except subprocess.TimeoutExpired as error:  # the process has been killed; its output so far is used
        return subprocess.CompletedProcess(command, -1, error.stdout or b"", error.stderr or b""), True


def _frames(output: bytes, *, cut: bool) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
    """The worker's answers; an incomplete answer at the end is ignored if the output may be `cut`."""
    place = 0
    while place < len(output):
        begin = place + clingo_worker.HEAD.size
        words, codes = clingo_worker.HEAD.unpack_from(output, place) if begin <= len(output) else (len(output), 0)
        place = begin + words + codes
        if place > len(output) or codes % 4:
            if cut:
                return
            raise SolverError("clingo's process sent an answer whose length differs from its header")
        yield json.loads(output[begin : begin + words]), np.frombuffer(output, np.int32, codes // 4, begin + words)


def _refusal(frame: dict[str, Any], shape: Shape, path: Path, own: str) -> str:
    if frame["line"]:
        return f"{shape.where(frame['line']) or 'the program'}: {frame['refused']}"
    reason = frame["refused"].replace(str(path), own)
    return reason if reason.startswith(own) else f"{own}: {reason}"


def _check(frame: dict[str, Any], shape: Shape, notes: str) -> None:
    """Raise the error that an answer reports, if any; `notes` are clingo's messages about the shape."""
    if frame.get("full"):
        raise BudgetError(
            f"grounding the theory for sample {shape.samples[0]} took more than {MEMORY / 1e9:.0f} GB of memory; bind "
            "the variables of its rules more narrowly"
        )
    if "error" in frame:
        raise InputError(notes or frame["error"])
    labels = "|".join({slot_of(slot).kind for slot in shape.slots})
    unknown = re.search(rf"[^;]*does not occur in any rule head:\s*({labels})\([^;]*", notes)
    if unknown and frame.get("grounded"):
        raise InputError(f"an unknown label: {unknown[0].strip()}; correct it, or add it to labels=")
    if "sentence" not in frame:
        return
    whose = shape.name(frame["sentence"])
    if frame.get("more"):
        raise BudgetError(
            f"{whose}: it has more candidates than the budget. Raise budget=, draw some uniformly with per_sample=, or "
            "compile the sentence into a Formula"
        )
    if frame.get("thin"):
        raise BudgetError(
            f"{whose}: too few random combinations of its possible labels satisfy it, so its candidates could not be "
            "drawn uniformly; list all candidates (without per_sample=), or compile a Formula"
        )
    if not frame.get("rows"):
        why = "the theory contradicts itself" if frame["contradiction"] else "no labels satisfy its sentence"
        hint = f" (clingo says: {notes})" if notes else ""
        raise InputError(f"{whose}: {why}{hint}; correct it, or leave the sample out")


def _explained(messages: Sequence[str], shape: Shape, path: Path, own: str) -> str:
    """clingo's messages, with the names of samples in place of line numbers, and the theory's `own` name."""
    explained = []
    for message in messages[:_SHOWN_MESSAGES]:
        text = re.sub(r"\[#inc_base\];?", "", " ".join(message.split())).replace(str(path), own)
        for line in dict.fromkeys(re.findall(r"<block>:(\d+)", text)):
            owner = shape.where(int(line))
            text = re.sub(rf"<block>:{line}:[\d-]+", owner or "the program", text)
        explained.append(text)
    more = len(messages) - _SHOWN_MESSAGES
    explained += [f"and {more} more"] if more > 0 else []
    return "; ".join(explained)


def _too_late(frames: Sequence[tuple[dict[str, Any], np.ndarray]], shapes: Sequence[Shape], time_limit: float) -> str:
    last = frames[-1][0] if frames else {"group": 0, "begins": True}
    first = shapes[last["group"]].samples[0]
    if last.get("begins"):
        return (
            f"grounding the theory for sample {first} took longer than the time limit of {time_limit:g} s; bind the "
            "variables of its rules more narrowly, or raise time_limit="
        )
    return (
        f"solving the samples with the slots and facts of sample {first} took longer than the time limit of "
        f"{time_limit:g} s; raise time_limit=, or draw some candidates with per_sample="
    )


@dataclass(frozen=True, eq=False)
class Program:
    """An answer-set program over label atoms such as `name(o1, dog)`.

    Each slot of a sample has exactly one label. The theory derives facts from the labels and excludes combinations.

    Examples:
        >>> theory = "total(S) :- S = #sum { D,X : digit(X, D) }."
        >>> program = Program(theory, {"digit": range(10)}, slots=["digit(x1, _)", "digit(x2, _)"])
        >>> program.candidates(["total(8)", "total(2)", "total(16)"])
        Candidates(3 samples, 15 candidates, 2 slots, 10 classes)
        >>> program.support(["total(2)"])[0].nonzero().flatten()
        tensor([0, 1, 2])

    Attributes:
        theory: the program's text, or the path of its file.
        labels: the labels of each kind, by predicate: `{"name": ["dog", …], "rel": ["on", …]}`; the id of a label is
            its index.
        slots: the slots of samples whose `Sentence` has none, such as `["digit(x1, _)", "digit(x2, _)"]`.
        time_limit: seconds for each call; `math.inf` for no limit.
    """

    theory: str | Path
    labels: Labels
    slots: Sequence[str] = ()
    time_limit: float = TIME_LIMIT

    def __post_init__(self) -> None:
        if not isinstance(self.theory, Path):
            readable(self.theory, "a theory")
        object.__setattr__(self, "labels", _checked(self.labels))
        object.__setattr__(self, "slots", readable_slots(self.slots))
        limit = self.time_limit
        if isinstance(limit, bool) or not isinstance(limit, numbers.Real) or not limit > 0:
            raise InputError(f"expected a positive time limit in seconds, got {shown(limit)}")
        object.__setattr__(self, "time_limit", math.inf if limit > LONGEST else float(limit))

    def candidates(
        self, samples: Sequence[Sentence | str], *, budget: int = BUDGET, per_sample: int | None = None, seed: int = 0
    ) -> Candidates:
        """All label combinations under which each sample's sentence holds: answer sets, projected on the label atoms.

        Args:
            samples: a `Sentence` for each sample, or its text if all samples have the same slots and facts.
            budget: the largest number of candidates of distinct sentences to list.
            per_sample: draw this many candidates of each sample uniformly, if there are more; samples with the same
                sentence get the same ones.
            seed: the seed of these draws.

        Returns:
            The candidates of all samples.

        Raises:
            InputError: if the theory or a sentence is wrong, or no labels satisfy a sentence.
            BudgetError: if there are more candidates than the budget, or time runs out.
        """
        budget = whole_number(budget, "budget", least=1)
        wanted = 0 if per_sample is None else whole_number(per_sample, "per_sample", least=1)
        found, shapes, places = self._solved(
            samples, "list", budget, wanted, whole_number(seed, "seed", -(2**63), 2**64 - 1)
        )
        kinds = self._kinds()
        longest = max(len(shape.slots) for shape in shapes)
        keys = list(found)
        rows = [np.pad(found[key], ((0, 0), (0, longest - found[key].shape[1])), constant_values=-1) for key in keys]
        labels = torch.from_numpy(np.concatenate(rows)).long()
        counts = torch.tensor([len(part) for part in rows])
        distinct = Candidates.from_tensors(labels, torch.repeat_interleave(counts), sizes_of(kinds))
        _ = distinct.support_with_unused, distinct.kind  # computed for few rows, inherited by all samples
        place = {key: i for i, key in enumerate(keys)}
        return distinct.batch([place[key] for key in places])

    def support(self, samples: Sequence[Sentence | str]) -> Tensor:
        """The labels that each instance takes in some candidate, `(n*m, c)` bool, without listing any candidate.

        Args:
            samples: as for `candidates`.

        Raises:
            InputError: if the theory or a sentence is wrong, or no labels satisfy a sentence.
            BudgetError: if time runs out.
        """
        found, shapes, places = self._solved(samples, "brave", 1, 0, 0)
        longest = max(len(shape.slots) for shape in shapes)
        tables = {}
        for key, pairs in found.items():
            tables[key] = torch.zeros(longest, self._kinds()[-1].stop, dtype=torch.bool)
            slot, label = torch.from_numpy(pairs.copy()).long().unbind(1)
            tables[key][slot, label] = True
        return torch.cat([tables[key] for key in places])

    def _solved(
        self, samples: Sequence[Sentence | str], mode: str, budget: int, per_sample: int, seed: int
    ) -> tuple[Answers, list[Shape], list[tuple[int, int]]]:
        kinds = self._kinds()
        shapes, places = shapes_of(samples, self.slots, self.labels)
        groups = [shape.job(self.labels, kinds) for shape in shapes]
        job: dict[str, Any] = {
            "groups": groups, "mode": mode, "budget": budget, "per_sample": per_sample, "seed": seed,
            "classes": kinds[-1].stop,
        }  # fmt: skip
        return answers(self.theory, shapes, job, self.time_limit), shapes, places

    def _kinds(self) -> tuple[Kind, ...]:
        return kinds_of({kind: len(labels) for kind, labels in self.labels.items()})


def _checked(labels: Any) -> Labels:
    """The labels of each kind, checked: they must be different terms in clingo."""
    if not isinstance(labels, Mapping) or not labels:
        raise InputError(f'expected labels by predicate, such as {{"name": ["dog", "cat"]}}, got {shown(labels)}')
    found = {}
    for kind, own in labels.items():
        if not isinstance(kind, str) or not PREDICATE.fullmatch(kind) or kind == "not":
            raise InputError(f"expected labels by predicate, a word such as 'name', got {shown(kind)}")
        found[kind] = tuple(as_list(own, f"the labels of kind {kind!r}"))
        if len({term(label) for label in found[kind]}) < len(found[kind]):
            raise InputError(f"expected different labels of kind {kind!r}, got one twice")
    kinds_of({kind: len(own) for kind, own in found.items()})
    return found
