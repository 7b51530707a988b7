"""For whatever has to look at candidates one by one: a lattice is refused, and the message says what to do."""

from __future__ import annotations

from clipper.candidates.lattice import Lattice
from clipper.candidates.table import Candidates
from clipper.errors import InputError

CandidateSet = Candidates | Lattice
"""What engines, prunings and training loops take."""


def must_be_listed(candidates: CandidateSet, what: str) -> Candidates:
    """The candidates, unless they are a lattice: `what` has to look at them one by one."""
    if isinstance(candidates, Lattice):
        raise InputError(
            f"{what} looks at candidates one by one, but got {candidates!r}; list them with to_candidates() where "
            "they are few, or take some with sample() or top_k()"
        )
    return candidates
