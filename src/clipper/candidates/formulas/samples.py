"""What is known of a compiled formula's samples: counts, supports, probabilities, restrictions, batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from clipper.candidates.checks import allowed_by_slot, check_log_probs, check_nonempty, kind_of_label, known_samples
from clipper.candidates.formulas.compiling import IMPOSSIBLE, Compiled
from clipper.candidates.kinds import Kind
from clipper.errors import InputError

_EXACT = 2**53
"""Below this, whole numbers in double precision are exact."""


@dataclass(frozen=True, eq=False)
class CompiledSamples:
    """Samples that share a circuit, each with its own formula and, where it was pruned, its own allowed labels."""

    compiled: Compiled
    """The circuit, shared by all samples."""
    template: Tensor
    """`(n,)`: which of the circuit's formulas each sample satisfies."""
    lengths_of: Tensor
    """`(formulas,)`: how many slots each formula is about."""
    kinds: tuple[Kind, ...]
    """The kinds of label; one, unless several classifiers are trained."""
    allowed: Tensor | None = None
    """`(n, m, c)` bool: the labels that a restriction has left to each instance; None for all."""

    @property
    def samples(self) -> int:
        """How many samples there are, `n`."""
        return len(self.template)

    @property
    def slots(self) -> int:
        """How many slots the longest sample has, `m`."""
        return int(self.compiled.pairs[:, 0].max()) + 1

    @property
    def classes(self) -> int:
        """The length of the label axis, `c`."""
        return self.kinds[-1].stop

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.template.device

    @property
    def states(self) -> int:
        """Numbers that one evaluation of the circuit holds."""
        return self.compiled.size

    @property
    def lengths(self) -> Tensor:
        """How many slots each sample has, `(n,)`."""
        return self.lengths_of[self.template]

    @property
    def ragged(self) -> bool:
        """Whether some slots are unused."""
        return bool((self.lengths < self.slots).any())

    @property
    def contents(self) -> tuple[Tensor, ...]:
        """The tensors that tell these candidates from others."""
        return self.template, self.support, self.log_count

    def prepare(self) -> None:
        """Work out now what an engine will need, so that it is not first worked out in inference mode."""
        _ = self.kind, self.mask

    @cached_property
    def kind(self) -> Tensor:
        """The kind of label in each slot, `(n, m)`; -1 where the slot is unused."""
        slot, label = self.compiled.pairs.to(self.device).unbind(1)
        of_slot = torch.zeros(self.slots, dtype=torch.long, device=self.device)
        of_slot[slot] = kind_of_label(label, self.kinds)
        used = torch.arange(self.slots, device=self.device) < self.lengths[:, None]
        return torch.where(used, of_slot, -1)

    @cached_property
    def counts(self) -> list[int]:
        """How many candidates each sample has, exactly, however many."""
        with torch.no_grad():
            about = self.compiled.evaluate(self.mask.double(), self.template, "real")
        words = zip(about.tolist(), self.template.tolist(), strict=True)
        few = [value < _EXACT for value in about.tolist()]
        return [
            round(value) if few[i] else self.compiled.count(template, None if self.allowed is None else self.mask[i])
            for i, (value, template) in enumerate(words)
        ]

    @cached_property
    def log_count(self) -> Tensor:
        """The log of how many candidates each sample has, `(n,)` in double precision."""
        return self.log_probability(torch.zeros(self.samples, self.slots, self.classes, device=self.device).double())

    @cached_property
    def support(self) -> Tensor:
        """The labels that each instance takes in some candidate of its sample, `(n*m, c)` bool."""
        zeros = torch.zeros(self.samples, self.slots, self.classes, device=self.device).double()
        return (self.marginals(zeros) > 0).flatten(0, 1)

    def log_probability(self, log_probs: Tensor) -> Tensor:
        """log Σ_σ Π_j p(σ(j)): how probable it is that the labels satisfy each sample's formula, `(n,)`.

        Differentiable in `log_probs (n, m, c)`. -inf, with zero gradient, where every candidate is ruled out.
        """
        check_log_probs(log_probs, self)
        logs = torch.where(self.mask, log_probs.double().clamp(min=IMPOSSIBLE), IMPOSSIBLE)
        total = self.compiled.evaluate(logs, self.template, "log")
        possible = total > IMPOSSIBLE / 2
        return torch.where(possible, total, -torch.inf).to(log_probs.dtype)

    def marginals(self, log_probs: Tensor) -> Tensor:
        """The posterior probability of each label in each slot, given the formula, `(n, m, c)`, without gradient."""
        check_log_probs(log_probs, self)
        with torch.inference_mode(False), torch.enable_grad():  # whoever prunes may be in inference mode
            own = replace(self, template=self.template.clone(), allowed=self.mask.clone())
            logs = log_probs.detach().clone().double().requires_grad_()
            total = own.log_probability(logs)
            return torch.autograd.grad(total[total > -torch.inf].sum(), logs)[0].to(log_probs.dtype)

    def contains(self, gold: Tensor) -> Tensor:
        """Whether each sample's gold labels `(n, m)` are among its candidates, `(n,)` bool."""
        if gold.shape != (self.samples, self.slots):
            raise InputError(f"expected gold of shape ({self.samples}, {self.slots}), got {tuple(gold.shape)}")
        inside = (gold >= 0) == (self.kind >= 0)
        just = torch.nn.functional.one_hot(gold.clamp(min=0).long(), self.classes).bool()
        return inside.all(1) & self.narrowed(just.flatten(0, 1)).possible()

    def restrict(self, allowed: Tensor) -> Self:
        """Only the candidates whose every label is in `allowed (n*m, c)` bool; every sample must keep one."""
        restricted = self.narrowed(allowed)
        check_nonempty(restricted.possible().long(), what="would lose their last candidate")
        return restricted

    def narrowed(self, allowed: Tensor) -> Self:
        """As `restrict`, but samples may be left without a candidate: ask `possible`."""
        narrowed = allowed_by_slot(allowed, self.samples, self.slots, self.classes)
        return replace(self, allowed=narrowed if self.allowed is None else narrowed & self.allowed)

    def possible(self) -> Tensor:
        """Whether each sample has a candidate, `(n,)` bool."""
        with torch.no_grad():
            return self.log_count > -torch.inf

    def batch(self, samples: Tensor | Sequence[int]) -> Self:
        """The formula of the given samples, in the given order; a sample may come twice."""
        ids = known_samples(samples, self.samples, self.device)
        allowed = None if self.allowed is None else self.allowed.index_select(0, ids)
        return replace(self, template=self.template.index_select(0, ids), allowed=allowed)

    def span(self, first: int, last: int) -> Self:
        """The formula of the samples `first` to `last - 1`."""
        return self.batch(torch.arange(first, last))

    def to(self, device: torch.device | str) -> Self:
        """The same formula on another device."""
        allowed = None if self.allowed is None else self.allowed.to(device)
        return replace(self, template=self.template.to(device), lengths_of=self.lengths_of.to(device), allowed=allowed)

    @cached_property
    def mask(self) -> Tensor:
        """The labels that each slot may take, `(n, m, c)` bool."""
        whole = torch.ones(self.samples, self.slots, self.classes, dtype=torch.bool, device=self.device)
        return whole if self.allowed is None else self.allowed
