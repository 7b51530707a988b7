"""A pruning as a restriction of label domains: which samples kept exactly the template's rows inside a domain?"""

from __future__ import annotations

import torch
from torch import Tensor

from clipper.candidates import Candidates
from clipper.candidates.packed import segment_sum


def is_restriction(candidates: Candidates, templates: Candidates) -> Tensor:
    """Whether each sample's candidates are its template's rows with σ(j) ∈ support(j) for all slots j, `(n,)` bool.

    Clipper's prunings always are (they keep the rows in their order). A random pruning is not: it drops rows
    whose labels all survive elsewhere.

    Examples:
        >>> whole = Candidates.from_lists([[(0, 2), (1, 1), (2, 0)]] * 2, classes=3)
        >>> kept = whole.subset(torch.tensor([False, True, True, True, False, True]))
        >>> is_restriction(kept, whole)
        tensor([True, True])
        >>> whole = Candidates.from_lists([[(0, 0), (0, 1), (1, 0), (1, 1)]], classes=2)
        >>> is_restriction(whole.subset(torch.tensor([True, False, False, True])), whole)
        tensor([False])
    """
    kept = candidates.support_with_unused
    inside = torch.stack([templates.take(kept, slot) for slot in range(templates.slots)]).all(
        0
    )  # (Ω,) of the templates
    same = segment_sum(inside.long(), templates) == candidates.offsets.diff()  # (n,)
    ours, theirs = same[candidates.sample], inside & same[templates.sample]
    differ = (candidates.labels[ours] != templates.labels[theirs]).any(1)
    return same.index_fill(0, candidates.sample[ours][differ], False)


def allowed_only(log_probs: Tensor, candidates: Candidates) -> Tensor:
    """`log_probs (n, m, c)` with -inf where no candidate of the sample has the label."""
    return torch.where(candidates.support.view(log_probs.shape), log_probs, -torch.inf)
