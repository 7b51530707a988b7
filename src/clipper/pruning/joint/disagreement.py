"""Disagreement: which near instances differ all the same, and on which labels; found without gold labels.

Fours lie among nines, and a jump looks like a fall. A neighbour's word for a four is then a weaker word for a nine as
well; without this, neighbours that are wrong together are believed together.
"""

from __future__ import annotations

import torch
from torch import Tensor

_DOUBT = 3.0
"""Pairs, for each two labels, that say nothing about them: so that a handful of pairs makes no law."""


def disagreements(
    believed: Tensor, error: Tensor, others: Tensor, worth: Tensor, confused: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The probability that the ends of each pair differ, `(P,)`, and how often two labels meet so, `(c, c)`.

    Args:
        believed: what either end believes without the other, `(2P, c)`, the two ends of a pair half the rows apart.
        error: the probability that they differ before looking, `(P,)`.
        others: labels of their kind, less the one that they may share, `(P,)`.
        worth: what agreement on each label is worth, `(c,)`.
        confused: how much likelier than by chance two labels meet, as found before, `(c, c)`; all alike if not given.
    """
    one, other = believed.chunk(2)
    like = equal_confusion(len(worth)).to(believed) if confused is None else confused
    rate = error / others
    same = ((one * other) @ worth) * (1 - error)
    apart = ((one @ like) * other).sum(1) * rate
    total = (same + apart).clamp(min=torch.finfo(same.dtype).tiny)
    met = (one * (rate / total)[:, None]).T @ other * like
    return apart / total, met + met.T


def enough_pairs(pairs: int, classes: int) -> bool:
    """Whether so many pairs could say more about so many labels than doubt does."""
    return pairs > _DOUBT * classes**2


def equal_confusion(classes: int) -> Tensor:
    """What `confusion` is before anything is known of it, `(c, c)`: a label does not disagree with itself."""
    return 1 - torch.eye(classes)


def confusion(met: Tensor, many: Tensor, same_kind: Tensor) -> Tensor:
    """How many times likelier than by chance each two labels are to meet in a pair that disagrees, `(c, c)`.

    One on average; zero for a label and itself, one for labels of different kinds, which never meet.

    Args:
        met: how often two labels met, `(c, c)`.
        many: how many instances have each label, `(c,)`; more than none.
        same_kind: which labels are of the same kind, `(c, c)` bool.

    Examples:
        >>> met = torch.tensor([[0.0, 60.0, 10.0], [60.0, 0.0, 20.0], [10.0, 20.0, 0.0]])
        >>> confusion(met, torch.ones(3), torch.ones(3, 3).bool())
        tensor([[0.0000, 1.8696, 0.4203],
                [1.8696, 0.0000, 0.7101],
                [0.4203, 0.7101, 0.0000]])
    """
    other = same_kind & ~torch.eye(len(many), device=same_kind.device).bool()
    chance = many[:, None] * many * other
    share = torch.where(other, chance / _over_kind(chance, same_kind).clamp(min=1e-9), 1.0)  # one in sum over a kind
    doubt = _DOUBT * same_kind.sum(1, keepdim=True) ** 2
    times = (met + doubt * share) / ((_over_kind(met, same_kind) + doubt) * share)
    return torch.where(other, times, (~same_kind).to(met))


def _over_kind(values: Tensor, same_kind: Tensor) -> Tensor:
    """The sum of `values (c, c)` over all labels of the row's kind, `(c, 1)`."""
    return same_kind.to(values) @ values.sum(1, keepdim=True)
