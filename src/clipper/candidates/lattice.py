"""Lattice: candidate sets of any size, as paths through the states of a rule instead of a list.

This file does not depend on embeddings, graphs or losses.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from clipper.arguments import all_within, shown, whole_numbers
from clipper.candidates.base import (
    Impossible,
    TemplateSet,
    check_satisfiable,
    gold_labels,
    labels_not_read,
    outside_inference_mode,
)
from clipper.candidates.graph_building import BUDGET, condensed, kind_of_slots, state_graph_of, templates_of
from clipper.candidates.kinds import Classes, kinds_of
from clipper.candidates.lattice_rows import best, drawn, followed, listed
from clipper.candidates.lattice_sums import log_entropy, log_probability, masked, output_probabilities
from clipper.candidates.packed import ranked
from clipper.candidates.rules import Accept, Step, checked_machine
from clipper.candidates.state_graph import (
    StateGraph,
    count_ways,
    integers_of,
    only,
    supported_labels,
    viable,
    words_for,
)
from clipper.candidates.table import Candidates
from clipper.errors import InputError

_LARGE = 1 << 14
"""If a slot has at least this many arcs, a batch gets a graph of its own, which is faster than traversing all."""


@dataclass(frozen=True, eq=False)
class Lattice(TemplateSet):
    """The possible labels of each sample, for rules that read one label after the other.

    Build it with `from_rule`. Candidates are never enumerated: counts, probabilities, the best candidates and random
    ones are computed exactly on the layered graph of the rule's states, for all samples together.

    Examples:
        >>> lattice = Lattice.from_rule(0, lambda total, label: total + label, lambda total: total,
        ...                             targets=[8, 2, 180], slots=[2, 2, 40], classes=10)
        >>> lattice
        Lattice(3 samples, 40 slots, 10 classes, 3,641 states)
        >>> lattice.counts[:2], len(str(lattice.counts[2]))
        ([9, 3], 39)
        >>> lattice.batch([0]).top_k(torch.randn(1, 40, 10), k=3)
        Candidates(1 samples, 3 candidates, 40 slots, 10 classes)

    Attributes:
        template: `(n,)`: the template of each sample, a pair of target and length in `graph`.
        kinds: the kinds of label; one, unless several classifiers are trained.
        allowed: `(n, m, c)` bool: the labels that restrictions leave each instance; None for all.
        graph: the states of the rule, shared by all samples.
        observed: `(n, steps)`: the observed labels that the rule reads besides the slots; -1 at the steps that read a
            slot. None if every step reads a slot, in their order.
        read_at: `(m,)`: the step at which the rule reads each slot; None if `observed` is None.
    """

    LISTED: ClassVar[int] = 20_000_000
    PER_SAMPLE: ClassVar[tuple[str, ...]] = (*TemplateSet.PER_SAMPLE, "observed")

    graph: StateGraph = field(kw_only=True)
    observed: Tensor | None = field(default=None, kw_only=True)
    read_at: Tensor | None = field(default=None, kw_only=True)

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
        impossible: Impossible = "refuse",
        observed: Any = None,
        read_at: Sequence[int] | Tensor | None = None,
    ) -> Lattice:
        """All label combinations that a state machine maps to each sample's target.

        A machine may also read labels that you know, such as the digits of a known result. Such labels are
        **observed**. They are not slots of the set, and all samples still share the states of the machine.

        Args:
            start: the state before the first label; any hashable value.
            step: from a state and a label to the next state, or None if the label cannot follow.
            accept: from a final state to the target.
            targets: the target of each of the `n` samples.
            slots: how many labels the machine reads: the inputs of a sample and the observed labels; a list for samples
                of different lengths.
            classes: the number of labels, or a mapping from each kind of label to its number.
            domains: the labels that the machine may read at each step; all labels if not given.
            budget: the largest number of arcs; equal states are followed once.
            impossible: "refuse" a target that no labels satisfy, or "keep" its sample without candidates.
            observed: `(n, slots)`: the labels that you know; -1 where the machine reads an input.
            read_at: the step, from 0, at which the machine reads each input; in their order if not given.

        Returns:
            The lattice of all samples. With `observed`, its slots are only the inputs.

        Raises:
            InputError: if no labels give the target of a sample, or `step` or `accept` fails.
            BudgetError: if the machine has more arcs than the budget.

        Examples:
            >>> difference = Lattice.from_rule(  # the label of an image minus a known number, which is read first
            ...     0, lambda total, label: label - total, lambda total: total, targets=[2, 2], slots=2, classes=10,
            ...     observed=[[3, -1], [5, -1]])
            >>> difference.to_candidates().labels.tolist()
            [[5], [7]]
        """
        kinds = kinds_of(classes)
        machine = checked_machine((start, step, accept))
        graph, template = state_graph_of(machine, targets, slots, kinds, domains, budget, impossible)
        kind_of_slots(graph, kinds)  # refuses slots that mix kinds
        if observed is None and read_at is None:
            return cls(template, kinds, graph=graph)
        known, steps = _observations(observed, read_at, graph, len(template))
        lattice = cls(template, kinds, graph=graph, observed=known, read_at=steps)
        return lattice.without_candidates(~lattice.possible(), impossible)

    @classmethod
    @outside_inference_mode
    def from_candidates(cls, candidates: Candidates) -> Lattice:
        """The smallest lattice with the same candidates, for rules without a state machine.

        Prefixes with the same continuations become one state. Two samples must list the same candidates in the same
        order, as samples with the same target do, or have no candidate in common. Targets are numbers from 0 on.

        Args:
            candidates: the listed candidates.

        Raises:
            InputError: if there are no samples, or a candidate occurs twice, in one sample or in samples that differ.

        Examples:
            >>> Lattice.from_candidates(Candidates.from_rule(max, targets=[9, 8, 9], slots=4, classes=10))
            Lattice(3 samples, 4 slots, 10 classes, 12 states)
        """
        if not isinstance(candidates, Candidates):
            raise InputError(f"expected Candidates, got {shown(candidates)}; list others with to_candidates()")
        if not candidates.samples:
            raise InputError("expected the candidates of at least one sample, got none")
        check_satisfiable(candidates)
        used = candidates.first >= 0
        if bool((~used[:, :-1] & used[:, 1:]).any()):
            raise InputError("expected unused slots after the used ones, got labels after an unused slot (-1)")
        template, firsts = templates_of(candidates)
        graph = condensed(candidates.batch(firsts))
        if graph is None:
            raise InputError(
                "expected samples that list the same candidates in the same order, or none in common, each once; "
                "some candidate occurs twice. If the list was pruned, build the lattice before pruning, and restrict it"
            )
        return cls(template, candidates.kinds, graph=graph)

    def without_candidates(self, emptied: Tensor, impossible: Impossible) -> Self:
        """The same lattice, in which the samples `emptied (n,)` bool have no candidates.

        Args:
            emptied: the samples, `(n,)` bool.
            impossible: "refuse" raises an error if there are any, "keep" keeps them without candidates.

        Raises:
            InputError: if there are any and `impossible` is "refuse".
        """
        if not bool(emptied.any()):
            return self
        if impossible == "refuse":
            raise InputError(
                f"sample {int(emptied.nonzero()[0])}: no labels satisfy its formula; correct it, leave the "
                "sample out, or keep it without candidates with impossible='keep'"
            )
        templates = self.graph.targets  # add a copy of each, in which no state ends
        graph = replace(self.graph, targets=(*templates, *templates), lengths=self.graph.lengths.repeat(2))
        return replace(self, graph=graph, template=self.template + len(templates) * emptied)

    @property
    def slots(self) -> int:
        """How many slots the longest sample has, `m`."""
        return self.graph.slots if self.read_at is None else len(self.read_at)

    @property
    def contents(self) -> tuple[Tensor, ...]:
        """The tensors that distinguish this lattice from others."""
        layers = [layer.next for layer in self.graph.layers]
        own = (rows for rows in (self.allowed, self.observed) if rows is not None)
        return self.template, *layers, *self.graph.ends, *own

    @property
    def shared(self) -> bool:
        """Whether the template alone determines the candidates of each sample."""
        return self.allowed is None and self.observed is None

    @cached_property
    @outside_inference_mode
    def impossible(self) -> Tensor | None:
        """The samples that were kept although no labels satisfy their formula, `(n,)` bool; None if there are none."""
        if self.graph.complete:
            return None
        missing = ~self.graph.attained[self.template]
        return missing if bool(missing.any()) else None

    @cached_property
    def plain(self) -> bool:
        """Whether every slot is used and holds the first kind of label."""
        full = self.read_at is not None or not self.graph.ragged
        return (full and len(self.kinds) == 1) or not bool(self.kind.any())

    @property
    def lengths(self) -> Tensor:
        """How many slots each sample has, `(n,)`."""
        if self.read_at is not None:
            return torch.full_like(self.template, self.slots)
        return self.graph.lengths[self.template]

    @cached_property
    def counts(self) -> list[int]:
        """The exact number of candidates of each sample, as Python integers of any size."""
        if self.shared:
            return integers_of(self.graph.counts[self.template])
        return integers_of(self._by_piece(count_ways, each=words_for(self.graph)))

    @cached_property
    @outside_inference_mode
    def support(self) -> Tensor:
        """The labels that each instance takes in some candidate of its sample, `(n*m, c)` bool."""
        if self.shared:
            return self.graph.support.index_select(0, self.template).flatten(0, 1)
        return self._of_slots(self._by_piece(supported_labels)).flatten(0, 1)

    @cached_property
    @outside_inference_mode
    def kind(self) -> Tensor:
        """The kind of label in each slot, `(n, m)`; -1 where the slot is unused."""
        return self._of_slots(kind_of_slots(self.graph, self.kinds).index_select(0, self.template))

    def contains(self, gold: Tensor) -> Tensor:
        """Whether each sample's gold labels `(n, m)` are among its candidates, `(n,)` bool."""
        gold = gold_labels(gold, self)
        read = gold
        if self.observed is not None and self.read_at is not None:
            read = self.observed.index_copy(1, self.read_at, gold)
        inside = followed(self.graph, self.template, read)
        if self.allowed is None:
            return inside
        taken = self.allowed.gather(2, gold.clamp(0, self.classes - 1)[..., None])[..., 0]
        return inside & (taken | (self.kind < 0)).all(1)

    def possible(self) -> Tensor:
        """Whether each sample has a candidate, `(n,)` bool."""
        if self.shared:
            return self.graph.attained[self.template]
        return self._by_piece(lambda *part: viable(*part)[0][0])

    def select(self, ids: Tensor) -> Self:
        """As `batch`, for `ids (b,)` on the lattice's device; they are not checked."""
        batch = super().select(ids)
        if self.graph.widest < _LARGE or self.graph.ragged:
            return batch
        wanted, template = torch.unique(batch.template, return_inverse=True)
        if 2 * len(wanted) > len(self.graph.targets):
            return batch
        return replace(batch, graph=only(self.graph, wanted), template=template)

    @outside_inference_mode
    def to(self, device: torch.device | str) -> Self:
        """The same lattice on another device."""
        read_at = None if self.read_at is None else self.read_at.to(device)
        return replace(super().to(device), graph=self.graph.to(device), read_at=read_at)

    @cached_property
    @outside_inference_mode
    def _mask(self) -> Tensor | None:
        """The labels that may be read at each step, `(n, steps, c)` bool; None where all samples may have all."""
        if self.observed is not None and self.read_at is not None:
            known = torch.nn.functional.one_hot(self.observed.clamp(min=0), self.classes).bool()
            if self.allowed is None:
                return known.index_fill_(1, self.read_at, True)
            return known.index_copy_(1, self.read_at, self.allowed)
        if not self.graph.ragged:
            return self.allowed
        used = (torch.arange(self.slots, device=self.device) < self.lengths[:, None])[..., None]
        return used.expand(-1, -1, self.classes) if self.allowed is None else used & self.allowed

    @property
    def _columns(self) -> Tensor:
        """As `_mask`, `(steps, c, n)`."""
        if self._mask is not None:
            return self._mask.permute(1, 2, 0)
        return torch.ones(self.graph.slots, self.classes, self.samples, dtype=torch.bool, device=self.device)

    def _by_piece(self, ask: Callable[[StateGraph, Tensor, Tensor], Tensor], each: int = 1) -> Tensor:
        """The result of `ask` for graph, template and columns, some samples at a time to bound the memory."""
        columns, pieces = self._columns, self.graph.pieces(self.samples, each)
        return torch.cat([ask(self.graph, self.template[part], columns[..., part]) for part in pieces])

    @property
    def states(self) -> int:
        """How many states the rule has."""
        return self.graph.states

    def _log_probability(self, log_probs: Tensor) -> Tensor:
        if not self.samples:
            return log_probs.sum((1, 2))
        pieces = self.graph.pieces(self.samples)
        if len(pieces) == 1:
            return log_probability(self.graph, self.template, self._inward(self._read(log_probs)), self._mask)
        return torch.cat([self.span(part.start, part.stop).log_probability(log_probs[part]) for part in pieces])

    def _template_outputs(self, log_probs: Tensor) -> Tensor:
        if len(self.kinds) > 1:  # as in `_read`, for labels that no output has
            log_probs = torch.where(self.graph.support.any(0) | (log_probs < torch.inf), log_probs, -torch.inf)
        pieces = self.graph.pieces(len(log_probs))
        return torch.cat([output_probabilities(self.graph, log_probs[part]) for part in pieces])

    def _entropy(self, log_probs: Tensor) -> Tensor:
        logs = masked(self._inward(self._read(log_probs)), self._mask)
        pieces = self.graph.pieces(self.samples)
        return torch.cat([log_entropy(self.graph, self.template[part], logs[part]) for part in pieces])

    def _best(self, log_probs: Tensor, k: int) -> Candidates:
        logs = masked(ranked(self._inward(self._read(log_probs))), self._mask)
        pieces = self.graph.pieces(self.samples, each=k)
        return self._joined(pieces, [best(self.graph, self.template[part], logs[part], k) for part in pieces])

    def _draws(self, draws: int, generator: torch.Generator, log_probs: Tensor | None) -> tuple[Tensor, Tensor]:
        return drawn(self, draws, generator, log_probs)

    def _all(self) -> Candidates:
        columns, pieces = self._columns, self.graph.pieces(self.samples)
        rows = self._joined(pieces, [listed(self.graph, self.template[part], columns[..., part]) for part in pieces])
        return rows if self.read_at is None else rows.distinct()  # sorts rows by slots instead of steps

    def _joined(self, pieces: list[slice], found: list[tuple[Tensor, Tensor]]) -> Candidates:
        """The listed set of the rows found for each piece; sample ids count from the start of the piece."""
        labels = torch.cat([labels for labels, _ in found])
        sample = torch.cat([piece.start + own for piece, (_, own) in zip(pieces, found, strict=True)])
        return self._rows(self.outward(labels, sample), sample)

    def weights(self, log_probs: Tensor | None, samples: Tensor) -> Tensor:
        """The logarithms of the label weights of some samples, `(samples, m, c)`; all equal if `log_probs` is None."""
        logs = self._inward(self.zeros() if log_probs is None else self._read(log_probs)).index_select(0, samples)
        return masked(logs, None if self._mask is None else self._mask.index_select(0, samples))

    def outward(self, labels: Tensor, sample: Tensor) -> Tensor:
        """The labels of the slots, `(rows, m)`, from the graph's `labels (rows, steps)` for each row's sample."""
        del sample
        return self._of_slots(labels)

    def _of_slots(self, values: Tensor) -> Tensor:
        """The `values (n, steps, …)` at the steps that read a slot, `(n, m, …)`."""
        return values if self.read_at is None else values.index_select(1, self.read_at)

    def _read(self, log_probs: Tensor) -> Tensor:
        """`log_probs (n, m, c)` without NaN and infinity in labels that no candidate has, where they may stand.

        If there are several kinds, arcs with these labels are in the graph, and 0 times infinity would be NaN.
        """
        if len(self.kinds) == 1:
            return log_probs
        return torch.where(labels_not_read(self) & ~(log_probs < torch.inf), -torch.inf, log_probs)

    def _inward(self, values: Tensor) -> Tensor:
        """The `values (n, m, c)` of slots, placed at the step that reads each slot, `(n, steps, c)`; 0 elsewhere."""
        if self.read_at is None:
            return values
        return values.new_zeros(len(values), self.graph.slots, self.classes).index_copy(1, self.read_at, values)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.samples:,} samples, {self.slots} slots, {self.classes} classes, "
            f"{self.graph.states:,} states)"
        )


def _observations(observed: Any, read_at: Any, graph: StateGraph, samples: int) -> tuple[Tensor, Tensor]:
    """The observed label of each step, `(n, steps)`, and the step that reads each slot, `(m,)`."""
    known = torch.full((samples, graph.slots), -1)
    if observed is not None:
        known = whole_numbers(observed, "observed labels").to(torch.long, copy=True)
    if known.shape != (samples, graph.slots) or graph.ragged:
        raise InputError(
            f"expected observed labels of shape ({samples}, {graph.slots}), one for each label that the machine reads "
            f"of samples of one length, -1 where it reads an input, got {shown(observed)}"
        )
    seen = known >= 0
    if bool((seen != seen[:1]).any()) or bool(seen[0].all()) or not all_within(known, -1, graph.classes - 1):
        raise InputError(
            f"expected the same steps to be observed in every sample, some to read an input (-1), and labels "
            f"0 … {graph.classes - 1}, got {shown(observed)}"
        )
    inputs = (~seen[0]).nonzero()[:, 0]
    if read_at is None:
        return known, inputs
    steps = whole_numbers(read_at, "steps of read_at").to(torch.long, copy=True)
    if steps.shape != inputs.shape or not torch.equal(steps.sort().values, inputs):
        raise InputError(f"expected read_at as an order of the steps {inputs.tolist()} that read, got {shown(read_at)}")
    return known, steps
