"""Lattice: candidate sets of any size, as ways through the states of a rule instead of a list.

This file knows nothing of embeddings, graphs of neighbours or losses.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from clipper.arguments import shown
from clipper.candidates.base import check_any_log_probs, check_log_probs, outside_inference_mode
from clipper.candidates.kinds import Classes, kinds_of
from clipper.candidates.lattices.best import best
from clipper.candidates.lattices.building import graph_of, kind_of_slots
from clipper.candidates.lattices.condensing import condensed, templates_of
from clipper.candidates.lattices.draws import by_weight, uniform
from clipper.candidates.lattices.expansion import BUDGET, Accept, Step
from clipper.candidates.lattices.logarithms import log_entropy
from clipper.candidates.lattices.rows import listed
from clipper.candidates.lattices.samples import GraphSamples
from clipper.candidates.lattices.sums import log_probability, masked, output_probabilities
from clipper.candidates.packed import ranked
from clipper.candidates.table import Candidates
from clipper.errors import InputError


@dataclass(frozen=True, eq=False)
class Lattice(GraphSamples):
    """What the labels of each sample could be, for rules that read one label after the other.

    Build one with `from_rule`. Nothing is enumerated: counts, probabilities, the best candidates and random ones are
    worked out on the layered graph of the rule's states, exactly, for all samples together.

    Examples:
        >>> lattice = Lattice.from_rule(0, lambda total, label: total + label, lambda total: total,
        ...                             targets=[8, 2, 180], slots=[2, 2, 40], classes=10)
        >>> lattice
        Lattice(3 samples, 40 slots, 10 classes, 3,641 states)
        >>> lattice.counts[:2], len(str(lattice.counts[2]))
        ([9, 3], 39)
        >>> lattice.batch([0]).top_k(torch.randn(1, 40, 10), k=3)
        Candidates(1 samples, 3 candidates, 40 slots, 10 classes)
    """

    LISTED: ClassVar[int] = 20_000_000

    @classmethod
    @outside_inference_mode
    def from_rule(
        cls,
        start: Hashable,
        step: Step,
        accept: Accept,
        targets: Sequence[Hashable] | Tensor,
        slots: int | Sequence[int],
        classes: Classes,
        *,
        domains: Sequence[Sequence[int]] | None = None,
        budget: int = BUDGET,
    ) -> Lattice:
        """All label combinations that a state machine maps to each sample's target.

        Args:
            start: the state before the first label; any hashable value.
            step: from a state and a label to the next state, or None where the label cannot follow.
            accept: from a state to the target of a sample that ends there.
            targets: what the rule gives for each of the `n` samples.
            slots: how many inputs a sample has; a list for samples of different lengths.
            classes: how many labels there are, or a mapping from kind to number.
            domains: the labels each slot may take, if not all of them.
            budget: arcs to follow at most; equal states are followed once.
        """
        kinds = kinds_of(classes)
        if isinstance(start, Tensor) or not isinstance(start, Hashable):
            raise InputError(f"expected a hashable start state, and no tensor, got {shown(start)}")
        graph, template = graph_of(start, step, accept, targets, slots, kinds, domains, budget)
        kind_of_slots(graph, kinds)  # refuses slots that mix kinds
        return cls(template, kinds, graph=graph)

    @classmethod
    @outside_inference_mode
    def from_candidates(cls, candidates: Candidates) -> Lattice:
        """The smallest lattice with the same candidates: beginnings that can be continued alike become one state.

        For rules that nobody wrote as a state machine. Samples may list the same candidates, in the same order, as
        they do where they have the same target; other samples must not share any. Targets are numbers from 0 on.

        Examples:
            >>> Lattice.from_candidates(Candidates.from_rule(max, targets=[9, 8, 9], slots=4, classes=10))
            Lattice(3 samples, 4 slots, 10 classes, 12 states)
        """
        if not isinstance(candidates, Candidates):
            raise InputError(f"expected Candidates, got {shown(candidates)}; list others with to_candidates()")
        used = candidates.first >= 0
        if bool((~used[:, :-1] & used[:, 1:]).any()):
            raise InputError("expected unused slots after the used ones, got labels behind an unused slot (-1)")
        template, firsts = templates_of(candidates)
        graph = condensed(candidates.batch(firsts))
        if graph is None:
            raise InputError(
                "expected samples that list the same candidates in the same order, or none in common, each once; "
                "some candidate comes twice. Of a list that was pruned, take the lattice before, and restrict that"
            )
        return cls(template, candidates.kinds, graph=graph)

    @property
    def states(self) -> int:
        """How many states the rule has."""
        return self.graph.states

    def log_probability(self, log_probs: Tensor) -> Tensor:
        """log Σ_σ Π_j p(σ(j)): how probable it is that the labels satisfy each sample's formula, `(n,)`.

        Differentiable in `log_probs (n, m, c)`. -inf, with zero gradient, where the classifier rules out every
        candidate; any finite log-probability is no trouble.
        """
        check_log_probs(log_probs, self)
        if not self.samples:
            return log_probs.sum((1, 2))
        pieces = self._pieces()
        if len(pieces) == 1:
            return log_probability(self.graph, self.template, log_probs, self._mask)
        parts = [self.span(part.start, part.stop).log_probability(log_probs[part]) for part in pieces]
        return torch.cat(parts)

    def output_probabilities(self, log_probs: Tensor) -> Tensor:
        """The probability of each of this lattice's targets under *any* samples' `log_probs (b, m, c)`, `(b, n)`.

        One forward pass serves all targets; differentiable. Not for a restricted lattice.
        """
        if self.allowed is not None:
            raise InputError("expected the outputs' lattice as it was built, got a restricted one; pass it unpruned")
        check_any_log_probs(log_probs, self)
        parts = [output_probabilities(self.graph, log_probs[part]) for part in self.graph.pieces(len(log_probs))]
        return torch.cat(parts).index_select(1, self.template)

    def entropy(self, log_probs: Tensor) -> Tensor:
        """The entropy of the posterior over each sample's candidates, `(n,)`, in nats; differentiable."""
        check_log_probs(log_probs, self)
        logs = masked(self._inward(log_probs), self._mask)
        parts = [log_entropy(self.graph, self.template[part], logs[part]) for part in self._pieces()]
        return torch.cat(parts).to(log_probs.dtype)

    def _best(self, log_probs: Tensor, k: int) -> Candidates:
        logs = masked(ranked(self._inward(log_probs)), self._mask)
        pieces = self.graph.pieces(self.samples, each=k)
        parts = [best(self.graph, self.template[part], logs[part], k) for part in pieces]
        widest = max(found.shape[1] for _, found in parts)
        padded = [(_padded(labels, widest), _padded(found, widest)) for labels, found in parts]
        labels, found = (torch.cat(column) for column in zip(*padded, strict=True))
        sample = found.nonzero()[:, 0]
        return self._rows(self.outward(labels[found], sample), sample)

    def _drawn(self, per_sample: int, generator: torch.Generator, log_probs: Tensor | None) -> Candidates:
        if log_probs is None:
            labels, sample = uniform(self, per_sample, generator)
        else:
            labels, sample = by_weight(self, per_sample, generator, log_probs)
        order = sample.argsort(stable=True)
        return self._rows(labels[order], sample[order])

    def _all(self) -> Candidates:
        columns = self._columns
        parts = [listed(self.graph, self.template[part], columns[..., part]) for part in self._pieces()]
        counts = torch.cat([torch.bincount(sample, minlength=1) for _, sample in parts])
        sample = torch.arange(self.samples, device=self.device).repeat_interleave(counts)
        return self._rows(self.outward(torch.cat([labels for labels, _ in parts]), sample), sample)

    def weights(self, log_probs: Tensor | None, samples: Tensor) -> Tensor:
        """What the labels of some samples weigh in logarithms, `(samples, m, c)` double; all equal if None."""
        shape = (len(samples), self.slots, self.graph.classes)
        if log_probs is None:
            logs = torch.zeros(shape, device=self.device)
        else:
            logs = self._inward(log_probs).index_select(0, samples)
        return masked(logs, None if self._mask is None else self._mask.index_select(0, samples))

    def outward(self, labels: Tensor, sample: Tensor) -> Tensor:
        """What the graph's `labels (rows, m)` stand for in each row's `sample (rows,)`: here, themselves."""
        del sample
        return labels

    def _inward(self, values: Tensor) -> Tensor:
        """The reverse, for `values (n, m, c)` of labels."""
        return values

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.samples:,} samples, {self.slots} slots, {self.classes} classes, "
            f"{self.graph.states:,} states)"
        )


def _padded(values: Tensor, width: int) -> Tensor:
    missing = width - values.shape[1]
    return torch.nn.functional.pad(values, (0, missing) if values.ndim == 2 else (0, 0, 0, missing))
