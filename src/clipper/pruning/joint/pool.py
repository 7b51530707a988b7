"""The pool as a graphical model: formulas of samples, pairs of instances, and what is known beforehand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import log

import torch
from torch import Tensor

from clipper.pruning.factors import Factor
from clipper.pruning.pairs import Edges
from clipper.pruning.ranks import Ranks


def one_hot(labels: Tensor, classes: int) -> Tensor:
    """`labels (n*m, states)` as `(n*m, c, states)`; all zeros where the slot is unused."""
    return (labels[:, None] == torch.arange(classes, device=labels.device)[:, None]).float()


@dataclass(frozen=True, eq=False)
class Pool:
    """A pool as a graphical model: formulas, pairs of near instances, and what is known of single instances.

    Attributes:
        factor: the formulas.
        edges: the pairs.
        unary: `(n*m, c, 1)`: log-odds that are known beforehand, such as a classifier's or those of a known label.
        possible: `(n*m, c)` bool: the labels of each slot's kind; none where the slot is unused.
        kinds: the labels of each kind.
        disbelieved: `(n,)` bool: samples whose formula is left out; None for none.
    """

    factor: Factor
    edges: Edges
    unary: Tensor
    possible: Tensor
    kinds: list[range]
    disbelieved: Tensor | None = None

    @property
    def classes(self) -> int:
        """How many labels there are."""
        return self.unary.shape[1]

    @property
    def ranks(self) -> Ranks:
        """The processes that share the pool."""
        return self.edges.shard.ranks

    @property
    def samples(self) -> int:
        """How many samples all ranks have together."""
        return self.edges.shard.total // self.factor.shape[1]

    def own_samples(self, rows: Tensor) -> Tensor:
        """The rows of this rank's samples, `(n, …)`, of `rows` with one row for each sample of all ranks."""
        first = self.edges.shard.first // self.factor.shape[1]
        return rows[first : first + self.factor.shape[0]]

    @cached_property
    def size(self) -> int:
        """Numbers that the formulas of all ranks need for one state."""
        return self.ranks.count(self.factor.size)

    @cached_property
    def others(self) -> Tensor:
        """`(P,)`: labels of the pair's kind, less the one they may share; at least 1."""
        return (self.possible.sum(1)[self.edges.first] - 1).clamp(min=1).to(self.unary.dtype)

    @cached_property
    def excluded(self) -> Tensor:
        """`(n*m, c)` bool: the labels that are ruled out because another label of the instance is known."""
        return self.unary[:, :, 0] < log(torch.finfo(self.unary.dtype).tiny) / 2

    @cached_property
    def typical(self) -> Tensor:
        """`(c, 1)`: how many instances would have each label if all labels of a kind were as frequent."""
        possible = self.possible.to(self.unary.dtype)
        return self.ranks.total((possible / possible.sum(1, keepdim=True).clamp(min=1)).sum(0))[:, None]

    @cached_property
    def same_kind(self) -> Tensor:
        """`(c, c)` bool: which labels are of the same kind."""
        possible = self.possible.to(self.unary.dtype)
        return (self.ranks.total(possible.T @ possible) > 0) | torch.eye(len(possible.T), device=possible.device).bool()

    @cached_property
    def first_copy(self) -> Tensor:
        """For each sample of all ranks, the first one that has the same inputs in any order, `(N,)`.

        Inputs are the same if their distance is as good as 0. What is known of one such sample is known of the others,
        so they count as one where formulas are hidden. If all distances are 0, as in graphs without distances, they do
        not tell which inputs are the same.
        """
        slots, edges = self.factor.shape[1], self.edges
        everyone = torch.arange(self.samples, device=self.unary.device)
        same = edges.length <= torch.finfo(edges.length.dtype).eps ** (1 / 2)
        if not (self.ranks.any(same) and self.ranks.any(~same)):
            return everyone
        inputs = edges.subset(same).components(1).masked_fill(~self.possible.any(1), -1)
        inputs = inputs.view(-1, slots).sort(1).values  # (n, m)
        inputs = self.ranks.rows(inputs, self.ranks.all_of(len(inputs)))
        _, group = torch.unique(inputs, dim=0, return_inverse=True)
        return everyone.scatter_reduce(0, group, everyone, "amin", include_self=False)[group]

    def heard(self, messages: Tensor) -> Tensor:
        """The sum of the messages to each instance, in log-odds, `(n*m, c, states)`."""
        return self.edges.collected(messages)

    def beliefs(self, field: Tensor, hidden: Tensor | None = None) -> Tensor:
        """The probability of each label, `(n*m, c, states)`; samples that are `hidden (n, states)` have no formula."""
        return self._where_hidden(hidden, field, self.factor.marginals, self.independent, self.by_slot)

    def best(self, field: Tensor, hidden: Tensor | None = None) -> Tensor:
        """The most probable labels, `(n*m, states)`; -1 in unused slots."""
        return self._where_hidden(hidden, field, self.factor.best, self._alone, lambda h: self.by_slot(h)[:, 0])

    def evidence(self, field: Tensor, hidden: Tensor | None = None) -> Tensor:
        """log Σ exp of the field over what a sample's labels may be, `(n, states)`."""
        return self._where_hidden(hidden, field, self.factor.evidence, self.total, lambda h: h)

    def _alone(self, field: Tensor) -> Tensor:
        alone = field.masked_fill(~self.possible[:, :, None], -torch.inf).argmax(1)
        return alone.masked_fill(~self.possible.any(1)[:, None], -1)

    def _where_hidden(
        self,
        hidden: Tensor | None,
        field: Tensor,
        formulas: Callable[[Tensor], Tensor],
        free: Callable[[Tensor], Tensor],
        spread: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """The result of `formulas`; for hidden samples that of `free`, which uses the field without any formula."""
        if self.without_formulas:
            return free(field)
        hidden = self._hidden(hidden)
        return formulas(field) if hidden is None else torch.where(spread(hidden), free(field), formulas(field))

    @cached_property
    def without_formulas(self) -> bool:
        """Whether the formulas of all samples are left out."""
        return self.disbelieved is not None and bool(self.disbelieved.all())

    def _hidden(self, hidden: Tensor | None) -> Tensor | None:
        if self.disbelieved is None:
            return hidden
        return self.disbelieved[:, None] if hidden is None else hidden | self.disbelieved[:, None]

    def surprise(self, field: Tensor) -> Tensor:
        """-log of each formula's probability if the field labels its slots independently, `(n, states)`."""
        return self.total(field) - self.factor.evidence(field)

    def tempered(self, heard: Tensor, sharpness: float, mistaken: float) -> Tensor:
        """The prior evidence plus the scaled messages, in log-odds, `(n*m, c, states)`; messages are never certain.

        Args:
            heard: the messages, log-odds `(n*m, c, states)`.
            sharpness: the factor on the messages.
            mistaken: the probability that the label of an instance does not depend on its neighbours' at all.
        """
        if not mistaken:
            return self.unary + heard * sharpness
        labels = self.possible.sum(1).clamp(min=1)[:, None, None]
        share = self.independent(heard * sharpness) * (1 - mistaken) + mistaken / labels
        return self.unary + share.log().masked_fill_(~self.possible[:, :, None], 0)

    def independent(self, field: Tensor) -> Tensor:
        """The probability of each label by the field alone, `(n*m, c, states)`; none in unused slots."""
        return field.masked_fill(~self.possible[:, :, None], -torch.inf).softmax(1).nan_to_num_(0)

    def total(self, field: Tensor) -> Tensor:
        """log Σ exp of the field over all labellings of a sample, `(n, states)`."""
        slots = field.masked_fill(~self.possible[:, :, None], -torch.inf).logsumexp(1)
        slots = slots.masked_fill(~self.possible.any(1)[:, None], 0)  # an unused slot adds 0
        return slots.view(self.factor.shape[0], self.factor.shape[1], -1).sum(1)

    def by_slot(self, samples: Tensor) -> Tensor:
        """`(n, states)` as `(n*m, 1, states)`."""
        return samples.repeat_interleave(self.factor.shape[1], 0)[:, None]

    def states_within(self, memory: int) -> int:
        """How many states can be propagated at a time if so many numbers may be held; at least one."""
        return max(1, memory // (self.size + 2 * self.edges.count * self.classes))

    def nearest(self, neighbours: int) -> Pool:
        """The pool with only those pairs in which one instance is among the `neighbours` nearest of the other."""
        return replace(self, edges=self.edges.subset(self.edges.rank < neighbours))
