"""Messages: one round of damped sum-product over the pool, for many starts at once.

Every pair of near instances agrees with some probability and is otherwise uniform over the other labels, so a message
is a mixture of what its sender believes and of nothing: no table of label pairs is ever built.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from clipper.pruning.joint.edges import Edges
from clipper.pruning.joint.factors import Factor


@dataclass(frozen=True, eq=False)
class Model:
    """A pool as a graphical model: formulas, pairs, and how many labels a pair can disagree on."""

    factor: Factor
    edges: Edges
    unary: Tensor
    """`(n*m, c, 1)`: log-odds that are known beforehand, such as a classifier's."""
    possible: Tensor
    """`(n*m, c)` bool: the labels of each slot's kind; none where the slot is unused."""

    @cached_property
    def others(self) -> Tensor:
        """`(P,)`: labels of the pair's kind, less the one they may share; at least 1."""
        return (self.possible.sum(1)[self.edges.first] - 1).clamp(min=1).to(self.unary.dtype)

    def weight(self, error: Tensor) -> Tensor:
        """The log-odds by which agreement is favoured, given each pair's `error (P,)`."""
        return ((1 - error) / (error / self.others)).log()

    def error(self, weight: Tensor) -> Tensor:
        """The reverse of `weight`."""
        return self.others / (self.others + weight.exp())

    def silence(self, starts: int) -> Tensor:
        """Messages that say nothing, `(2P, c, starts)`."""
        classes = self.unary.shape[1]
        return self.unary.new_full((2 * len(self.edges), classes, starts), 1 / classes)

    def field(self, messages: Tensor) -> Tensor:
        """What each instance hears from all others, in log-odds, `(n*m, c, starts)`."""
        return self.edges.collected(messages.log()).add_(self.unary)

    def energy(self, labels: Tensor, weight: Tensor) -> Tensor:
        """The weight `(P,)` that each labelling `(n*m, states)` cuts, less what it has in its favour, `(states,)`."""
        favour = torch.nn.functional.pad(self.unary[:, :, 0], (1, 0)).gather(1, labels + 1)
        return self.edges.cut(labels, weight) - favour.sum(0)

    def restricted(self, keep: Tensor) -> Model:
        """The model with the pairs `keep (P,)` only."""
        return Model(self.factor, self.edges.subset(keep), self.unary, self.possible)


def round_of_messages(
    model: Model, messages: Tensor, error: Tensor, damping: float, push: Tensor | None = None
) -> Tensor:
    """The next messages, `(2P, c, starts)`.

    Args:
        model: the pool.
        messages: the last ones.
        error: the probability that a pair disagrees, `(P,)`.
        damping: the share of the old messages in the new ones.
        push: added to what the instances hear, `(n*m, c, starts)`: noise, or a hint.
    """
    field = model.field(messages)
    belief = model.factor.marginals(field if push is None else field.add_(push))
    believed = without_reply(model, messages, belief)
    miss = (error / model.others).repeat(2)[:, None, None]
    believed.mul_(1 - error.repeat(2)[:, None, None] - miss).add_(miss)
    return believed.lerp_(messages, damping)


def without_reply(model: Model, messages: Tensor, belief: Tensor) -> Tensor:
    """What each message's sender believes, `(2P, c, starts)`, apart from what the receiver told it."""
    reverse = messages.roll(len(model.edges), 0)
    believed = belief.index_select(0, model.edges.source).div_(reverse)
    return believed.div_(believed.sum(1, keepdim=True).clamp_(min=torch.finfo(believed.dtype).tiny))
