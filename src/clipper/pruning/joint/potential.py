"""Potential: the pair potential ψ of near instances, its messages, and its fit by expectation-maximisation.

    ψ(y, y') = (1 − ε(d)) · r(y)  if y = y',      ε(d) / (c − 1) · q(y, y')  otherwise

ε is the share of disagreeing pairs at relative distance d, r weighs agreement on frequent labels down, and q says which
labels meet in pairs that disagree.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, einsum, finfo

from clipper.pruning.joint.pool import Pool
from clipper.pruning.ranks import ALONE, Ranks


@dataclass(frozen=True)
class Trust:
    """The probability that a pair of a given length disagrees: a logistic curve that never decreases.

    Attributes:
        level: the log-odds of disagreement at length 1, the typical distance around both ends.
        slope: the increase of the log-odds with the length.

    Examples:
        >>> Trust(level=0.0, slope=2.0).error(torch.tensor([0.5, 1.0, 1.5]))
        tensor([0.2689, 0.5000, 0.7311])
        >>> Trust.constant(0.2).error(torch.tensor([0.5, 1.5]))
        tensor([0.2000, 0.2000])
    """

    level: float
    slope: float

    @classmethod
    def constant(cls, error: float) -> Trust:
        """A trust with the same probability of disagreement, `error`, for all pairs."""
        return cls(float(torch.tensor(error, dtype=torch.float64).logit()), 0.0)

    @classmethod
    def fitted(cls, length: Tensor, disagreement: Tensor, ranks: Ranks = ALONE) -> Trust:
        """The curve that best fits the probabilities of disagreement, by Newton's method.

        Args:
            length: the length of each pair that counts on this rank, `(P,)`.
            disagreement: the probability that each pair disagrees, `(P,)`.
            ranks: the processes that share the pool.

        Examples:
            >>> length = torch.linspace(0.5, 1.5, 100_000)
            >>> Trust.fitted(length, torch.sigmoid(-1 + 3 * (length - 1)))
            Trust(level=-1.0, slope=3.0)
        """
        # Two additional pairs that agree with probability one half, so that a fit to few pairs is not extreme.
        unknown = 0 if ranks.rank else 2
        x = torch.cat([length - 1, length.new_tensor([-1 / 2, 1 / 2])[:unknown]]).cpu().double()
        x = torch.stack([torch.ones_like(x), x], dim=1)  # (P + 2, 2)
        y = torch.cat([disagreement, length.new_tensor([1 / 2, 1 / 2])[:unknown]]).cpu().double()
        best, step = torch.zeros_like(x[0]), torch.ones_like(x[0])
        while float(step.abs().max()) > finfo(length.dtype).eps ** (1 / 2):
            p = torch.sigmoid(x @ best)
            hessian, gradient = ranks.total((x * (p * (1 - p))[:, None]).T @ x), ranks.total(x.T @ (y - p))
            step = torch.linalg.solve(hessian, gradient).clamp(-1, 1)
            best = best + step
        level, slope = best.tolist()
        return cls(level, slope) if slope >= 0 else cls.constant(float(ranks.mean(y)))

    def error(self, length: Tensor) -> Tensor:
        """The probability that pairs of these lengths disagree, `(P,)`."""
        return torch.sigmoid(self.level + self.slope * (length - 1))

    def __repr__(self) -> str:
        return f"Trust(level={round(self.level, 2)}, slope={round(self.slope, 2)})"


@dataclass(frozen=True, eq=False)
class PairWeights:
    """The factors of ψ in one round of messages.

    Attributes:
        miss: `(P,)`: ε / (c − 1).
        agreed: `(P,)`: 1 − ε.
        rarity: `(c, states)`: r; None if all labels have the same weight.
        confusion: `(c, c)`: q; None if all labels are equally confused.
    """

    miss: Tensor
    agreed: Tensor
    rarity: Tensor | None
    confusion: Tensor | None

    def messages(self, senders: Tensor, pairs: slice) -> Tensor:
        """The messages Σ_y ψ(y, ·) b(y), `(2k, c, states)`. Overwrites `senders`.

        Args:
            senders: the cavity belief b of each message's sender, `(2k, c, states)`: first in one direction, then in
                the other; or `(k, c, states)`, in one direction only.
            pairs: the `k` pairs.
        """
        ways = len(senders) // max(1, len(self.miss[pairs]))
        miss, agreed = (part[pairs].repeat(ways)[:, None, None] for part in (self.miss, self.agreed))
        if self.rarity is not None:
            agreed = agreed * self.rarity
        if self.confusion is None:
            return senders.mul_(agreed.sub_(miss)).add_(miss)
        missed = einsum("ecs,cd->eds", senders, self.confusion).mul_(miss)
        return senders.mul_(agreed).add_(missed)


@dataclass(frozen=True, eq=False)
class Potential:
    """ψ of every pair of a pool.

    Attributes:
        trust: ε by length.
        least_error: the lowest probability that a pair disagrees.
        rarest: the largest value of r; its inverse is the smallest. 1 if all labels have the same weight.
        confusion: `(c, c)`: q; None if all labels are equally confused.
    """

    trust: Trust
    least_error: float
    rarest: float
    confusion: Tensor | None = None

    def errors(self, pool: Pool) -> Tensor:
        """ε of each pair, `(P,)`, limited to the range from `least_error` to chance level."""
        chance = pool.others / (pool.others + 1)
        return torch.minimum(self.trust.error(pool.edges.length).clamp(min=self.least_error), chance)

    def rarity(self, pool: Pool, belief: Tensor) -> Tensor:
        """r of each label, `(c, states)`, given the beliefs of instances, `(n*m, c, states)`.

        A neighbour of the same class is one of the members of the class, all with equal probability. So in a class
        twice as large, each of them is half as probable. Without this factor, two classes could get one name at no
        cost.
        """
        return ((pool.typical + 1) / (pool.ranks.total(belief.sum(0)) + 1)).clamp(1 / self.rarest, self.rarest)

    def weights(self, pool: Pool, belief: Tensor, coupling: float = 1.0) -> PairWeights:
        """The factors of ψ for all pairs.

        Args:
            pool: the pool.
            belief: the beliefs of instances, `(n*m, c, states)`.
            coupling: the share of the log-odds of agreement to use.
        """
        error = self.errors(pool)
        if coupling < 1:
            error = pool.others / (pool.others + ((1 - error) * pool.others / error) ** coupling)
        rarity = self.rarity(pool, belief) if self.rarest > 1 else None
        return PairWeights(error / pool.others, 1 - error, rarity, self.confusion)

    def tables(self, pool: Pool, pairs: Tensor, belief: Tensor | None = None) -> Tensor:
        """ψ of some `pairs (k,)` as tables, `(k, c, c)`."""
        error = self.errors(pool)[pairs]
        like = equal_confusion(pool.classes).to(error) if self.confusion is None else self.confusion
        agreed = torch.eye(pool.classes, device=error.device)
        if self.rarest > 1 and belief is not None:
            agreed = agreed * self.rarity(pool, belief)
        return (1 - error)[:, None, None] * agreed + (error / pool.others[pairs])[:, None, None] * like

    def renamed(self, order: Tensor) -> Potential:
        """ψ after renaming: label y now has the role of the former label `order[y]`, `(c,)`."""
        return self if self.confusion is None else replace(self, confusion=self.confusion[order][:, order])

    def refitted(
        self, pool: Pool, parts: Iterable[tuple[slice, Tensor]], belief: Tensor, prior_pairs: float
    ) -> Potential:
        """ψ fitted to the cavity beliefs of pairs: one step of expectation-maximisation.

        Args:
            pool: the pool.
            parts: some pairs `k` at a time, with the cavity beliefs of their senders, as in `PairWeights.messages`,
                `(2k, c, 1)`.
            belief: the beliefs of instances, `(n*m, c)`.
            prior_pairs: the number of pseudo-pairs for each two labels, confused at chance level; if infinite, q is 1.
        """
        error = self.errors(pool)
        rate = error / pool.others
        like = equal_confusion(pool.classes).to(belief) if self.confusion is None else self.confusion
        rarity = self.rarity(pool, belief[:, :, None])[:, 0]
        disagreement, met, counted = torch.empty_like(error), torch.zeros_like(like), pool.edges.counted
        for pairs, senders in parts:
            arriving = pool.edges.delivered(senders, pairs)
            one, other = senders[: len(error[pairs]), :, 0], arriving[-len(error[pairs]) :, :, 0]
            same = ((one * other) @ rarity) * (1 - error[pairs])
            apart = ((one @ like) * other).sum(1) * rate[pairs]
            total = (same + apart).clamp(min=finfo(same.dtype).tiny)
            disagreement[pairs] = apart / total
            if pairs.stop <= counted.stop:
                met += (one * (rate[pairs] / total)[:, None]).T @ other * like
        fitted = replace(self, trust=Trust.fitted(pool.edges.length[counted], disagreement[counted], pool.ranks))
        if prior_pairs == torch.inf:
            return fitted
        met, many = pool.ranks.total(met), pool.ranks.total(belief.sum(0))
        return replace(fitted, confusion=confusion(met + met.T, many + 1, pool.same_kind, prior_pairs))


def equal_confusion(classes: int) -> Tensor:
    """The initial q, `(c, c)`: 0 for a label and itself, 1 for all others."""
    return 1 - torch.eye(classes)


def confusion(met: Tensor, many: Tensor, same_kind: Tensor, prior_pairs: float) -> Tensor:
    """q: how often two labels occur in a pair that disagrees, relative to chance, `(c, c)`.

    It is 1 on average, 0 for a label and itself, and 1 for labels of different kinds, which are never in one pair.

    Args:
        met: the number of disagreeing pairs with each two labels, `(c, c)`.
        many: the number of instances with each label, `(c,)`, above 0.
        same_kind: which labels are of the same kind, `(c, c)` bool.
        prior_pairs: the number of pseudo-pairs for each two labels, confused at chance level.

    Examples:
        >>> met = torch.tensor([[0.0, 60.0, 10.0], [60.0, 0.0, 20.0], [10.0, 20.0, 0.0]])
        >>> confusion(met, torch.ones(3), torch.ones(3, 3).bool(), prior_pairs=3.0)
        tensor([[0.0000, 1.8696, 0.4203],
                [1.8696, 0.0000, 0.7101],
                [0.4203, 0.7101, 0.0000]])
    """
    other = same_kind & ~torch.eye(len(many), device=same_kind.device).bool()
    chance = many[:, None] * many * other
    share = torch.where(other, chance / _over_kind(chance, same_kind).clamp(min=finfo(chance.dtype).tiny), 1.0)
    doubt = prior_pairs * same_kind.sum(1, keepdim=True) ** 2
    times = (met + doubt * share) / ((_over_kind(met, same_kind) + doubt) * share)
    return torch.where(other, times, (~same_kind).to(met))


def _over_kind(values: Tensor, same_kind: Tensor) -> Tensor:
    """The sum of `values (c, c)` over all labels of the row's kind, `(c, 1)`."""
    return same_kind.to(values) @ values.sum(1, keepdim=True)
