"""Program: background knowledge as a logic program, and what it lets samples with sentences be labelled as.

This file knows nothing of networks; clingo runs in a process of its own.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clipper.arguments import as_list, shown, whole_number
from clipper.candidates.abduction import BUDGET
from clipper.candidates.kinds import Kind, kinds_of, sizes_of
from clipper.candidates.programs.running import LONGEST, Answers, answers
from clipper.candidates.programs.wording import PREDICATE, Sentence, readable, readable_slots, term
from clipper.candidates.programs.writing import Labels, Shape, shapes_of
from clipper.candidates.table import Candidates
from clipper.errors import InputError

TIME_LIMIT = 60.0
"""Seconds that a theory may take by default."""


@dataclass(frozen=True, eq=False)
class Program:
    """An answer-set program over label atoms such as `name(o1, dog)`.

    Each slot of a sample gets exactly one label; the theory says what follows from the labels, and what cannot be.

    Examples:
        >>> theory = "total(S) :- S = #sum { D,X : digit(X, D) }."
        >>> program = Program(theory, {"digit": range(10)}, slots=["digit(x1, _)", "digit(x2, _)"])
        >>> program.candidates(["total(8)", "total(2)", "total(16)"])
        Candidates(3 samples, 15 candidates, 2 slots, 10 classes)
        >>> program.support(["total(2)"])[0].nonzero().flatten()
        tensor([0, 1, 2])
    """

    theory: str | Path
    """The program's text, or the path of its file."""
    labels: Labels
    """The labels of each kind, by predicate: `{"name": ["dog", …], "rel": ["on", …]}`; a label's id is its place."""
    slots: Sequence[str] = ()
    """The slots of samples that bring none of their own, such as `["digit(x1, _)", "digit(x2, _)"]`."""
    time_limit: float = TIME_LIMIT
    """Seconds, for each call; infinite for none."""

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
        self,
        samples: Sequence[Sentence | str],
        *,
        budget: int = BUDGET,
        per_sample: int | None = None,
        seed: int = 0,
    ) -> Candidates:
        """The projections on the label atoms of all answer sets in which each sample's sentence holds.

        Args:
            samples: a `Sentence` each, or its text where slots and facts are shared.
            budget: candidates of distinct sentences to list at most.
            per_sample: draw so many of each sample uniformly, where there are more; every sample of one sentence
                gets the same ones.
            seed: of these draws.
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
        _ = distinct.support_with_unused, distinct.kind  # worked out for a few rows, inherited by all samples
        place = {key: i for i, key in enumerate(keys)}
        return distinct.batch([place[key] for key in places])

    def support(self, samples: Sequence[Sentence | str]) -> Tensor:
        """The labels that each instance takes in some candidate, `(n*m, c)` bool, without listing any candidate."""
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
    """The labels of each kind, if clingo can tell them apart."""
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
