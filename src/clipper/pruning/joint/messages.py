"""Messages: one round of damped sum-product over the pool, for many starts at once.

Every pair of near instances agrees with some probability. Otherwise it has any two labels, or, once it is known which
labels lie beside one another, rather those: no pair has a table of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from torch import Tensor, einsum, eye, finfo
from torch.nn.functional import pad

from clipper.pruning.joint.edges import Edges, one_hot
from clipper.pruning.joint.factors import Factor
from clipper.pruning.joint.trust import SMALLEST_ERROR

_RAREST = 4.0
"""Agreement on a rare label is worth this many times what it is worth on a typical one, at most."""


@dataclass(frozen=True, eq=False)
class Model:
    """A pool as a graphical model: formulas, pairs, and how many labels a pair can disagree on."""

    factor: Factor
    edges: Edges
    unary: Tensor
    """`(n*m, c, 1)`: log-odds that are known beforehand, such as a classifier's."""
    possible: Tensor
    """`(n*m, c)` bool: the labels of each slot's kind; none where the slot is unused."""
    least_error: float = SMALLEST_ERROR
    """No pair disagrees less often than this."""
    size_corrected: bool = False
    """Whether agreement on a frequent label is weaker evidence: among many, somebody near is easily found."""
    confused: Tensor | None = None
    """`(c, c)`: how many times likelier than by chance two labels meet in a pair that disagrees; None: all alike."""

    @cached_property
    def typical(self) -> Tensor:
        """`(c, 1)`: how many instances would have each label if all labels of a kind were as frequent."""
        possible = self.possible.to(self.unary.dtype)
        return (possible / possible.sum(1, keepdim=True).clamp(min=1)).sum(0)[:, None]

    def rarity(self, belief: Tensor) -> Tensor:
        """What agreement on each label is worth, `(c, starts)`, given how many have it by `belief (n*m, c, starts)`.

        A neighbour of the same class is one of its members, each with the same chance: half as probable a one where the
        class is twice as large. Without this, nothing would keep two classes from sharing a name.
        """
        return ((self.typical + 1) / (belief.sum(0) + 1)).clamp(1 / _RAREST, _RAREST)

    @cached_property
    def same_kind(self) -> Tensor:
        """`(c, c)` bool: which labels are of the same kind."""
        possible = self.possible.to(self.unary.dtype)
        return (possible.T @ possible > 0) | eye(len(possible.T), device=possible.device).bool()

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

    def zero_messages(self, starts: int) -> Tensor:
        """Messages that say nothing, `(2P, c, starts)`."""
        classes = self.unary.shape[1]
        return self.unary.new_full((2 * len(self.edges), classes, starts), 1 / classes)

    def field(self, messages: Tensor) -> Tensor:
        """What each instance hears from all others, in log-odds, `(n*m, c, starts)`."""
        return self.edges.collected(messages.log()).add_(self.unary)

    def energy(self, labels: Tensor, weight: Tensor) -> Tensor:
        """The weight `(P,)` that each labelling `(n*m, states)` cuts, less what it has in its favour, `(states,)`."""
        favour = pad(self.unary[:, :, 0], (1, 0)).gather(1, labels + 1).sum(0)
        if self.size_corrected:
            worth = pad(self.rarity(one_hot(labels, self.unary.shape[1])).log(), (0, 0, 1, 0))  # (1 + c, states)
            agreed = worth.gather(0, labels.index_select(0, self.edges.first) + 1)  # (P, states)
            favour += (agreed * ~self.edges.differs(labels)).sum(0)
        return self.edges.cut(labels, weight) - favour

    def restricted(self, keep: Tensor) -> Model:
        """The model with the pairs `keep (P,)` only."""
        return replace(self, edges=self.edges.subset(keep))


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
    believed = cavity_beliefs(model, messages, belief)
    miss, agreed = (error / model.others).repeat(2)[:, None, None], (1 - error).repeat(2)[:, None, None]
    if model.size_corrected:
        agreed = agreed * model.rarity(belief)
    if model.confused is None:
        believed.mul_(agreed.sub_(miss)).add_(miss)
    else:
        missed = einsum("ecs,cd->eds", believed, model.confused).mul_(miss)
        believed.mul_(agreed).add_(missed)
    if model.size_corrected:
        believed.div_(believed.sum(1, keepdim=True))
    return believed.lerp_(messages, damping)


def cavity_beliefs(model: Model, messages: Tensor, belief: Tensor) -> Tensor:
    """What each message's sender believes, `(2P, c, starts)`, apart from what the receiver told it."""
    pairs = len(model.edges)
    believed = belief.index_select(0, model.edges.source)
    believed[:pairs].div_(messages[pairs:])
    believed[pairs:].div_(messages[:pairs])
    return believed.div_(believed.sum(1, keepdim=True).clamp_(min=finfo(believed.dtype).tiny))
