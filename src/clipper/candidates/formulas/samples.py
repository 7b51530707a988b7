"""What is known of a compiled formula's samples: counts, supports, probabilities, restrictions, batches."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from clipper.candidates.base import check_log_probs, outside_inference_mode
from clipper.candidates.formulas.compiling import Compiled
from clipper.candidates.kinds import kind_of_label
from clipper.candidates.template_set import TemplateSet

_EXACT = 2**53
"""Below this, whole numbers in double precision are exact."""


@dataclass(frozen=True, eq=False)
class CompiledSamples(TemplateSet):
    """Samples that share a circuit, each with its own formula and, where it was pruned, its own allowed labels."""

    compiled: Compiled = field(kw_only=True)
    """The circuit, shared by all samples; a template is one of its formulas."""
    lengths_of: Tensor = field(kw_only=True)
    """`(formulas,)`: how many slots each formula is about."""

    @property
    def slots(self) -> int:
        """How many slots the longest sample has, `m`."""
        return int(self.compiled.pairs[:, 0].max()) + 1

    @property
    def states(self) -> int:
        """Numbers that one evaluation of the circuit holds."""
        return self.compiled.size

    @property
    def lengths(self) -> Tensor:
        """How many slots each sample has, `(n,)`."""
        return self.lengths_of[self.template]

    @property
    def contents(self) -> tuple[Tensor, ...]:
        """The tensors that tell these candidates from others."""
        return self.template, self.support, self.log_counts

    @cached_property
    @outside_inference_mode
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
    def support(self) -> Tensor:
        """The labels that each instance takes in some candidate of its sample, `(n*m, c)` bool."""
        return self.compiled.support(self.mask, self.template).flatten(0, 1)

    def log_probability(self, log_probs: Tensor) -> Tensor:
        """log Σ_σ Π_j p(σ(j)): how probable it is that the labels satisfy each sample's formula, `(n,)`.

        Differentiable in `log_probs (n, m, c)`. -inf, with zero gradient, where every candidate is ruled out.
        """
        check_log_probs(log_probs, self)
        logs = torch.where(self.mask, log_probs.double(), -torch.inf)
        return self.compiled.evaluate(logs, self.template, "log").to(log_probs.dtype)

    def marginals(self, log_probs: Tensor) -> Tensor:
        """The posterior probability of each label in each slot, given the formula, `(n, m, c)`, without gradient."""
        check_log_probs(log_probs, self)
        with torch.inference_mode(False), torch.enable_grad():  # whoever prunes may be in inference mode
            own = replace(self, template=self.template.clone(), allowed=self.mask.clone())
            logs = log_probs.detach().clone().double().requires_grad_()
            total = own.log_probability(logs)
            return torch.autograd.grad(total[total > -torch.inf].sum(), logs)[0].to(log_probs.dtype)

    def possible(self) -> Tensor:
        """Whether each sample has a candidate, `(n,)` bool."""
        with torch.no_grad():
            return self.log_counts > -torch.inf

    def to(self, device: torch.device | str) -> Self:
        """The same formula on another device."""
        return replace(super().to(device), lengths_of=self.lengths_of.to(device))

    @cached_property
    @outside_inference_mode
    def mask(self) -> Tensor:
        """The labels that each slot may take, `(n, m, c)` bool."""
        whole = torch.ones(self.samples, self.slots, self.classes, dtype=torch.bool, device=self.device)
        return whole if self.allowed is None else self.allowed
