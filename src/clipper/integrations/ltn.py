"""guard: the remaining candidates as a condition of LTNtorch's quantifiers. This module does not import LTNtorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from clipper.arguments import number_in_words
from clipper.candidates import CandidateSet
from clipper.candidates.base import must_be_candidates
from clipper.errors import BudgetError, InputError

MOST_CELLS = 1 << 28
"""Largest number of label combinations; LTNtorch computes a truth value for each of them."""


def guard(kept: CandidateSet) -> Callable[..., Tensor]:
    """A `cond_fn` for LTNtorch: whether the labels are one of the sample's candidates.

    In place of `cond_vars=[d1, d2, total], cond_fn=lambda d1, d2, total: …` in a formula, write
    `cond_vars=[sample, d1, d2], cond_fn=guard(kept)`: a variable with the numbers of the samples, then a variable with
    the labels of each slot. The quantifier then ranges over these candidates only.

    Args:
        kept: the candidates to range over, such as those of a pruning; all samples have the same number of slots.

    Returns:
        A plain function from LTNtorch's objects (anything with a tensor `.value`) to a mask `(combinations,)`.

    Raises:
        InputError: `kept` is not a set of candidates, or samples differ in length.
        BudgetError: there are too many combinations of labels.

    Examples:
        >>> from types import SimpleNamespace as Variable  # stands for ltn.Variable
        >>> from clipper import Candidates
        >>> kept = Candidates.from_lists([[(0, 2), (1, 1)], [(2, 2)]], classes=3)
        >>> sample, first, second = ([0, 0, 1], [1, 2, 2], [1, 0, 2])  # three combinations to ask about
        >>> guard(kept)(*(Variable(value=torch.tensor(part)) for part in (sample, first, second)))
        tensor([ True, False,  True])
    """
    must_be_candidates(kept)
    if bool((kept.lengths < kept.slots).any()):
        raise InputError(
            "expected samples of one length, as a formula has one variable for each slot; group the samples by their "
            "length: kept.batch(kept.lengths == 2)"
        )
    shape = (kept.samples, *[kept.classes] * kept.slots)
    cells = kept.samples * kept.classes**kept.slots
    if cells > MOST_CELLS:
        raise BudgetError(
            f"expected at most {MOST_CELLS:,} combinations of labels, all of which LTNtorch evaluates, got "
            f"{number_in_words(cells)}; take fewer samples at a time: guard(kept.batch(ids))"
        )
    listed = kept.to_candidates()
    allowed = torch.zeros(shape, dtype=torch.bool, device=kept.device)
    allowed[(listed.sample, *listed.labels.long().unbind(1))] = True

    def among_candidates(sample: Any, *labels: Any) -> Tensor:
        if len(labels) != len(shape) - 1:
            raise InputError(
                f"expected cond_vars of {len(shape)} variables, the sample and the label of each of {len(shape) - 1} "
                f"slots, got {1 + len(labels)}"
            )
        places = tuple(part.value.flatten().long() for part in (sample, *labels))
        return allowed.to(places[0].device)[places]

    return among_candidates
