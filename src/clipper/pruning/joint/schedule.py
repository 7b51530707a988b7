"""Schedule: from how many starts a pool is searched, and along which pairs, so that time and memory stay bounded."""

from __future__ import annotations

from clipper.errors import InputError
from clipper.pruning.joint.messages import Model
from clipper.pruning.joint.search import Plan
from clipper.pruning.joint.trust import Trust

_SEARCHED = 3
"""Of an instance's neighbours, the ones that the search looks at, unless formulas say too little by themselves."""
_LITTLE = 2
"""Candidates for each message, from which on they do: with all neighbours, such pools end in better states."""
_OPENED = 0.15
"""There, the share of the pool that is open again in every other offspring."""
_AT_ONCE = 1 << 22
"""Numbers held at a time: candidates and messages, times starts."""
_FEWEST, _MOST = 4, 64
"""Starts in a generation; a large pool has few states to get stuck in, so that few starts do."""
_PATIENCE = 100
"""Offspring without a better state before the search ends; three generations at least."""


def search_plan(model: Model, starts: int | None) -> Plan:
    """As many starts as asked for, or as the pool's size suggests."""
    if starts is not None and starts < 1:
        raise InputError(f"expected at least one start, got {starts}")
    wanted = starts or min(_MOST, _fitting(_nearest(model)))
    together = min(wanted, _fitting(model if _vague(model) else _nearest(model)))
    patience = max(Plan.patience, -(-_PATIENCE // wanted))
    return Plan(starts=wanted, together=together, patience=patience, opened=_OPENED if _vague(model) else 0.0)


def searched_part(model: Model, trust: Trust | None) -> tuple[Model, Trust]:
    """The pairs to search along, and how far to trust them."""
    if _vague(model):
        return model, trust or Trust.by_rank(model.edges.length)
    near = _nearest(model)
    return near, trust or Trust.by_rank(near.edges.length, farthest=0.35)


def _vague(model: Model) -> bool:
    """Whether formulas say so little that groups of instances can agree on wrong labels."""
    return _LITTLE * _messages(model) <= model.factor.count


def _fitting(model: Model) -> int:
    """How many starts can be held at a time."""
    return max(_FEWEST, _AT_ONCE // (model.factor.size + _messages(model)))


def _nearest(model: Model) -> Model:
    return model.restricted(model.edges.rank < _SEARCHED)


def _messages(model: Model) -> int:
    """Numbers that one start's messages hold."""
    return 2 * len(model.edges) * model.unary.shape[1]
