"""The guard by itself: it needs no LTNtorch."""

from __future__ import annotations

from itertools import product
from types import FunctionType, SimpleNamespace

import pytest
import torch
from hypothesis import given

from clipper import Candidates, ClipperError, Lattice
from clipper.candidates.rules import SUM
from clipper.integrations.ltn import guard
from tests.oracles import Problem
from tests.strategies import problems


def ask(condition: FunctionType, *columns: list[int]) -> list[bool]:
    """As LTNtorch asks: a column `(combinations, 1)` for each variable."""
    return condition(*(SimpleNamespace(value=torch.tensor(column)[:, None]) for column in columns)).tolist()


@given(problem=problems())
def test_it_admits_what_is_listed_and_nothing_else(problem: Problem) -> None:
    longest = max(len(rows[0]) for rows in problem.samples)
    samples = [rows for rows in problem.samples if len(rows[0]) == longest]
    kept = Candidates.from_lists(samples, classes=4)
    asked = [(i, *row) for i in range(len(samples)) for row in product(range(4), repeat=longest)]
    expected = [tuple(row) in set(map(tuple, samples[i])) for i, *row in asked]
    assert ask(guard(kept), *map(list, zip(*asked, strict=True))) == expected


def test_it_is_a_plain_function_as_ltntorch_demands() -> None:
    assert isinstance(guard(Candidates.from_lists([[(0,)]], classes=2)), FunctionType)


def test_candidates_that_are_not_listed_are_listed() -> None:
    lattice = Lattice.from_rule(*SUM, targets=[3, 18], slots=2, classes=10)
    assert ask(guard(lattice), [0, 0, 1, 1], [1, 1, 9, 3], [2, 3, 9, 0]) == [True, False, True, False]


def test_what_does_not_fit_is_refused_in_words() -> None:
    kept = Candidates.from_lists([[(0, 1)], [(1, 1)]], classes=2)
    with pytest.raises(ClipperError, match=r"3 variables, .* got 2"):
        ask(guard(kept), [0], [1])
    with pytest.raises(IndexError):
        ask(guard(kept), [0], [1], [2])
    with pytest.raises(ClipperError, match="one length"):
        guard(Candidates.from_lists([[(0, 1)], [(1,)]], classes=2))
    with pytest.raises(ClipperError, match="Candidates"):
        guard(torch.ones(2))
    with pytest.raises(ClipperError, match="combinations"):
        guard(Candidates.from_lists([[(0,) * 12]], classes=10))
