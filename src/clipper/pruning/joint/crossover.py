"""Crossover: new starting points combine two good labellings.

Each instance keeps the label on which few of its neighbours disagree; the others are open again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clipper.pruning.joint.edges import Edges, one_hot
from clipper.pruning.joint.messages import Model

if TYPE_CHECKING:
    from clipper.pruning.joint.search import Plan, States


def crossed_over(
    model: Model, weight: Tensor, parents: States, plan: Plan, generator: torch.Generator, starts: int
) -> Tensor:
    """Hints that combine two random parents each, in log-odds, `(n*m, c, starts)`."""
    calm = 1 - disagreeing_share(model.edges, weight, parents.labels)  # (n*m, parents)
    hints = one_hot(parents.labels, model.unary.shape[1]).mul_(plan.inheritance * calm.square()[:, None])
    pick = torch.randint(len(parents.energy), (2, starts), generator=generator).to(hints.device)
    if not plan.opened:
        return hints[:, :, pick[0]] + hints[:, :, pick[1]]
    pick[:, ::2] = 0  # the best state
    hint = hints[:, :, pick[0]] + hints[:, :, pick[1]]
    somewhere = torch.randint(len(hint), (len(pick[0, ::2]),), generator=generator).to(hints.device)
    hint[:, :, ::2] *= ~neighbourhoods(model.edges, somewhere, plan.opened)[:, None]
    return hint


def neighbourhoods(edges: Edges, centre: Tensor, share: float) -> Tensor:
    """Around each `centre (starts,)` what the most steps reach that reach no more than a share, `(n*m, starts)` bool.

    A group that agrees on a wrong label disagrees with others at its border alone. Opened as a whole, it can change.

    Examples:
        >>> from clipper import ProximityGraph
        >>> chain = Edges.of(ProximityGraph.from_edges([0, 1, 2, 3], [1, 2, 3, 4]), instances=5)
        >>> neighbourhoods(chain, torch.tensor([0, 2]), share=0.6).int().T.tolist()
        [[1, 1, 1, 0, 0], [0, 1, 1, 1, 0]]
    """
    inside = one_hot(centre[None], edges.instances)[0].bool()  # (n*m, starts)
    while True:
        reached = inside.float().index_add_(0, edges.target, inside[edges.source].float()) > 0
        grows = (reached.float().mean(0) <= share) & (reached != inside).any(0)
        if not bool(grows.any()):
            return inside
        inside = torch.where(grows, reached, inside)


def disagreeing_share(edges: Edges, weight: Tensor, labels: Tensor) -> Tensor:
    """The share of each instance's pairs, by weight, that a labelling cuts, `(n*m, states)`."""
    cut = edges.differs(labels) * weight[:, None]  # (P, states)
    total = cut.new_zeros(edges.instances, labels.shape[1]).index_add_(0, edges.source, cut.repeat(2, 1))
    whole = weight.new_zeros(edges.instances).index_add_(0, edges.source, weight.repeat(2))
    return total / whole.clamp(min=torch.finfo(whole.dtype).tiny)[:, None]
