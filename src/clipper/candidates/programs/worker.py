"""clingo at work, in a process of its own: what grounds for ever or eats all memory is ended from outside.

Run as a script, so that neither Clipper nor PyTorch is loaded here. Reads a job as JSON from standard input; writes for
each sentence a line of JSON and, where it announces `rows`, so many rows of `slots` labels as 32-bit integers.
"""

from __future__ import annotations

import importlib
import json
import random
import sys
from array import array
from collections.abc import Iterable
from typing import Any

LABEL, HOLDS, ASKED = "__label", "__holds", "__asked"
"""Which label a slot has, which sentence holds, and which is asked for: others must not cost anything."""
_FEW = 4
"""Sentences with fewer than so many times the wanted rows are listed, and theirs are picked from the list."""
_TRIES = 1_000_000
"""Label combinations drawn for a sentence before the draw is given up."""


class Group:
    """The grounded theory of all samples of one shape."""

    def __init__(self, clingo: Any, theory: str, text: str, classes: int, messages: list[str]) -> None:
        self.classes = classes
        options = ["--warn=none", "--warn=atom-undefined", "--opt-mode=ignore", "--project=project", "--models=0"]
        self.control = clingo.Control(options, logger=lambda _, message: messages.append(message))
        self.control.load(theory)
        self.control.add("base", [], text)
        self.control.ground([("base", [])])
        atoms = self.control.symbolic_atoms
        self.holds = {a.symbol.arguments[0].number: a.literal for a in atoms.by_signature(HOLDS, 1)}
        self.asked = {a.symbol.arguments[0].number: a.literal for a in atoms.by_signature(ASKED, 1)}
        self.label = {
            (a.symbol.arguments[0].number, a.symbol.arguments[1].number): a.literal
            for a in atoms.by_signature(LABEL, 2)
        }

    def ask(self, sentence: int, wanted: bool) -> None:
        """Turn a sentence on or off."""
        self.control.assign_external(self.asked[sentence], wanted)

    def possible(self, literals: list[int]) -> bool:
        """Whether an answer set has these literals."""
        return bool(self.control.solve(assumptions=literals).satisfiable)

    def rows(self, sentence: int, most: int) -> tuple[list[list[int]], bool]:
        """The labels of each slot in all answer sets where the sentence holds, and whether there are more."""
        found: list[list[int]] = []
        if sentence not in self.holds:
            return found, False
        self.control.configuration.solve.enum_mode = "auto"
        with self.control.solve(assumptions=[self.holds[sentence]], yield_=True) as models:
            for model in models:
                if len(found) == most:
                    return found, True
                found.append([code % self.classes for code in sorted(_codes(model))])
        return found, False

    def brave(self, sentence: int) -> list[tuple[int, int]]:
        """The slots' labels in some answer set where the sentence holds, without listing the answer sets."""
        pairs: list[tuple[int, int]] = []
        if sentence not in self.holds:
            return pairs
        self.control.configuration.solve.enum_mode = "brave"
        with self.control.solve(assumptions=[self.holds[sentence]], yield_=True) as models:
            for model in models:
                pairs = [divmod(code, self.classes) for code in _codes(model)]
        self.control.configuration.solve.enum_mode = "auto"
        return pairs

    def drawn(self, sentence: int, slots: int, most: int, chance: random.Random) -> list[list[int]] | None:
        """So many different rows, each set of rows as likely as any other; None if hardly any draw fits."""
        domains: list[list[int]] = [[] for _ in range(slots)]
        for slot, label in self.brave(sentence):
            domains[slot].append(label)
        found: dict[tuple[int, ...], None] = {}
        for _ in range(_TRIES):
            row = tuple(chance.choice(domain) for domain in domains)
            literals = [self.holds[sentence], *(self.label[slot, label] for slot, label in enumerate(row))]
            if row not in found and self.possible(literals):
                found[row] = None
                if len(found) == most:
                    return [list(row) for row in found]
        return None


def _codes(model: Any) -> list[int]:
    """The shown terms, slot · classes + label: single numbers, since reading symbols takes longer than finding them."""
    return [symbol.number for symbol in model.symbols(terms=True)]


def _say(document: dict[str, Any], rows: Iterable[list[int]] = ()) -> None:
    sys.stdout.buffer.write(json.dumps(document).encode() + b"\n")
    for row in rows:
        sys.stdout.buffer.write(array("i", row).tobytes())
    sys.stdout.buffer.flush()


def _answer(group: Group, work: dict[str, Any], job: dict[str, Any], sentence: int) -> None:
    group.ask(sentence, True)
    try:
        _answered(group, work, job, sentence)
    finally:
        group.ask(sentence, False)


def _answered(group: Group, work: dict[str, Any], job: dict[str, Any], sentence: int) -> None:
    slots, per_sample = work["slots"], job["per_sample"]
    here = {"group": work["group"], "sentence": sentence}
    if job["mode"] == "brave":
        pairs = [list(pair) for pair in group.brave(sentence)]
        return _say(_found(here, pairs, 2, group), pairs)
    most = _FEW * per_sample if per_sample else job["budget"]
    rows, more = group.rows(sentence, most)
    if per_sample and (more or len(rows) > per_sample):
        chance = random.Random(f"{job['seed']} {work['group']} {sentence}")
        drawn = group.drawn(sentence, slots, per_sample, chance) if more else chance.sample(sorted(rows), per_sample)
        return _say({**here, "thin": True}) if drawn is None else _say(_found(here, drawn, slots, group), sorted(drawn))
    job["budget"] -= len(rows)
    return _say({**here, "more": True}) if more else _say(_found(here, rows, slots, group), sorted(rows))


def _found(here: dict[str, Any], rows: list[list[int]], slots: int, group: Group) -> dict[str, Any]:
    contradiction = not rows and not group.possible([])
    return {**here, "rows": len(rows), "slots": slots, "contradiction": contradiction}


def _bound(memory: int) -> None:
    """Take no more than so many bytes, where the system can see to it."""
    try:
        resource = importlib.import_module("resource")
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def main() -> None:
    """Answer the job on standard input."""
    clingo = importlib.import_module("clingo")
    job = json.load(sys.stdin)
    _bound(job["memory"])
    for work in job["groups"]:
        messages: list[str] = []
        _say({"group": work["group"], "begins": True})
        try:
            group = Group(clingo, job["theory"], work["text"], job["classes"], messages)
        except (RuntimeError, MemoryError) as error:
            full = isinstance(error, MemoryError) or "bad_alloc" in str(error)
            return _say({"group": work["group"], "error": str(error), "full": full, "messages": messages})
        _say({"group": work["group"], "grounded": True, "messages": messages})
        for sentence in range(work["sentences"]):
            _answer(group, work, job, sentence)
    return None


if __name__ == "__main__":
    main()
