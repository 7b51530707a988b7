"""The forms that candidate sets come in, and a refusal for whatever has to look at candidates one by one."""

from __future__ import annotations

from clipper.candidates.formula import Formula
from clipper.candidates.lattice import Lattice
from clipper.candidates.table import Candidates
from clipper.errors import InputError

Implicit = Lattice | Formula
"""Candidates that nobody lists: counts, supports, probabilities and restrictions are worked out as a whole."""
CandidateSet = Candidates | Lattice | Formula
"""What engines, prunings and training loops take."""


def must_be_candidates(value: object, what: str = "candidates") -> CandidateSet:
    """The candidates, if that is what they are."""
    if isinstance(value, CandidateSet):
        return value
    kept = isinstance(getattr(value, "candidates", None), CandidateSet)
    advice = (
        "pass its .candidates"
        if kept
        else "build them with Candidates.from_rule, from_lists or from_tensors, or Lattice.from_rule"
    )
    raise InputError(
        f"expected {what} to be Candidates, a Lattice or a Formula, got a {type(value).__name__}: {advice}"
    )


def must_be_listed(candidates: CandidateSet, what: str) -> Candidates:
    """The candidates, if they are listed: `what` has to look at them one by one."""
    if not isinstance(candidates, Candidates):
        raise InputError(
            f"{what} looks at candidates one by one, but got {candidates!r}; list them with to_candidates() where "
            "they are few, or take some with sample() or top_k()"
        )
    return candidates
