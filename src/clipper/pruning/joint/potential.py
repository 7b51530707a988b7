"""Potential: how near instances share a label. ψ, its messages, and its fit in one step of expectation-maximisation.

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
    """The probability that a pair of a given length disagrees: a logistic curve that never falls.

    Attributes:
        level: the log-odds of disagreement at length 1, the typical distance around both ends.
        slope: how much they grow with the length.

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
        """The same for all pairs."""
        return cls(float(torch.tensor(error, dtype=torch.float64).logit()), 0.0)

    @classmethod
    def fitted(cls, length: Tensor, disagreement: Tensor, ranks: Ranks = ALONE) -> Trust:
        """The curve that fits the probability that each pair disagrees best, both `(P,)`, by Newton's method.

        Args:
            length: of each pair that counts on this rank.
            disagreement: the probability that it disagrees.
            ranks: those who share the pool.

        Examples:
            >>> length = torch.linspace(0.5, 1.5, 100_000)
            >>> Trust.fitted(length, torch.sigmoid(-1 + 3 * (length - 1)))
            Trust(level=-1.0, slope=3.0)
        """
        # Two more pairs, which agree with probability one half, so that a fit to few pairs does not become extreme.
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
    """What ψ is made of in one round of messages.

    Attributes:
        miss: `(P,)`: ε / (c − 1).
        agreed: `(P,)`: 1 − ε.
        rarity: `(c, states)`: r; None where no label is weighed down.
        confusion: `(c, c)`: q; None where all labels are confused alike.
    """

    miss: Tensor
    agreed: Tensor
    rarity: Tensor | None
    confusion: Tensor | None

    def messages(self, senders: Tensor, pairs: slice) -> Tensor:
        """What each sender says to its receiver, Σ_y ψ(y, ·) b(y), `(2k, c, states)`. Overwrites `senders`.

        Args:
            senders: what each message's sender believes apart from what its receiver said, `(2k, c, states)`; one way
                and then the other. Or `(k, c, states)`, one way only.
            pairs: whose messages these are: `k` of them.
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
        least_error: no pair disagrees less often than this.
        rarest: how much r may be at most; its inverse at least. 1 where no label is weighed down.
        confusion: `(c, c)`: q; None where all labels are confused alike.
    """

    trust: Trust
    least_error: float
    rarest: float
    confusion: Tensor | None = None

    def errors(self, pool: Pool) -> Tensor:
        """ε of each pair, `(P,)`, kept between near certainty and chance."""
        chance = pool.others / (pool.others + 1)
        return torch.minimum(self.trust.error(pool.edges.length).clamp(min=self.least_error), chance)

    def rarity(self, pool: Pool, belief: Tensor) -> Tensor:
        """r of each label, `(c, states)`, given what instances are believed to be, `(n*m, c, states)`.

        A neighbour of the same class is one of its members, each with the same chance: half as probable a one where the
        class is twice as large. Without this, nothing would keep two classes from sharing a name.
        """
        return ((pool.typical + 1) / (pool.ranks.total(belief.sum(0)) + 1)).clamp(1 / self.rarest, self.rarest)

    def weights(self, pool: Pool, belief: Tensor, coupling: float = 1.0) -> PairWeights:
        """How much each pair says.

        Args:
            pool: the pool.
            belief: what instances are believed to be, `(n*m, c, states)`.
            coupling: a share of the log-odds by which agreement is favoured.
        """
        error = self.errors(pool)
        if coupling < 1:
            error = pool.others / (pool.others + ((1 - error) * pool.others / error) ** coupling)
        rarity = self.rarity(pool, belief) if self.rarest > 1 else None
        return PairWeights(error / pool.others, 1 - error, rarity, self.confusion)

    def tables(self, pool: Pool, pairs: Tensor, belief: Tensor | None = None) -> Tensor:
        """ψ of some `pairs (k,)`, written out, `(k, c, c)`."""
        error = self.errors(pool)[pairs]
        like = equal_confusion(pool.classes).to(error) if self.confusion is None else self.confusion
        agreed = torch.eye(pool.classes, device=error.device)
        if self.rarest > 1 and belief is not None:
            agreed = agreed * self.rarity(pool, belief)
        return (1 - error)[:, None, None] * agreed + (error / pool.others[pairs])[:, None, None] * like

    def renamed(self, order: Tensor) -> Potential:
        """ψ if label y is now called what was `order[y]`, `(c,)`."""
        return self if self.confusion is None else replace(self, confusion=self.confusion[order][:, order])

    def refitted(
        self, pool: Pool, parts: Iterable[tuple[slice, Tensor]], belief: Tensor, prior_pairs: float
    ) -> Potential:
        """ψ fitted to what the ends of pairs believe without each other: one step of expectation-maximisation.

        Args:
            pool: the pool.
            parts: some pairs `k` at a time, and what the senders of their messages believe, as in
                `PairWeights.messages`, `(2k, c, 1)`.
            belief: what instances are believed to be, `(n*m, c)`.
            prior_pairs: pairs for each two labels that say nothing about their confusion; infinite: q stays 1.
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
    """q before anything is known of it, `(c, c)`: a label does not disagree with itself."""
    return 1 - torch.eye(classes)


def confusion(met: Tensor, many: Tensor, same_kind: Tensor, prior_pairs: float) -> Tensor:
    """q: how many times likelier than by chance each two labels are to meet in a pair that disagrees, `(c, c)`.

    One on average; zero for a label and itself, one for labels of different kinds, which never meet.

    Args:
        met: how often two labels met, `(c, c)`.
        many: how many instances have each label, `(c,)`; more than none.
        same_kind: which labels are of the same kind, `(c, c)` bool.
        prior_pairs: pairs for each two labels that say nothing.

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
