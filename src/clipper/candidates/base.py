"""CandidateSet: the interface of a set of candidates, whatever its form.

This file does not depend on how a set is stored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

import torch
from torch import Tensor

from clipper.arguments import (
    all_within,
    as_tensor,
    number_in_words,
    seeded,
    shown,
    usable_device,
    whole_number,
    whole_numbers,
    widened,
)
from clipper.candidates.kinds import Kind, kind_of_label, smallest_type
from clipper.candidates.packed import occurrences
from clipper.errors import BudgetError, InputError

if TYPE_CHECKING:
    from clipper.candidates.table import Candidates


Impossible = Literal["refuse", "keep"]
"""What to do with a target that no labels satisfy: raise an error, or keep the sample without candidates."""
Result = TypeVar("Result")
_FEW = 4
"""If a sample has less than this multiple of the wanted candidates, draws list them all and pick from the list."""


def outside_inference_mode(function: Callable[..., Result]) -> Callable[..., Result]:
    """Decorate a function so that it runs outside of inference mode, so that gradients may use the tensors it makes."""

    @wraps(function)
    def run(*arguments: Any, **options: Any) -> Result:
        if not torch.is_inference_mode_enabled():
            return function(*arguments, **options)
        with torch.inference_mode(False):
            return function(*arguments, **options)

    return run


class CandidateSet(ABC):
    """The possible labels of each of `n` samples.

    `Candidates` lists them row by row; `Lattice`, `Alignments` and `Formula` describe sets of any size.

    Attributes:
        kinds: the kinds of label; one, unless several classifiers are trained.
    """

    LISTED: ClassVar[int]
    """Candidates that `to_candidates`, `top_k` and `draw` list before they raise a `BudgetError`."""

    kinds: tuple[Kind, ...]

    @property
    @abstractmethod
    def samples(self) -> int:
        """How many samples there are, `n`."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """How many slots the longest sample has, `m`."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """The device of the tensors."""

    @property
    @abstractmethod
    def kind(self) -> Tensor:
        """The kind of label in each slot, `(n, m)`; -1 where the slot is unused."""

    @property
    @abstractmethod
    def counts(self) -> list[int]:
        """The exact number of candidates of each sample, as Python integers of any size."""

    @property
    @abstractmethod
    def support(self) -> Tensor:
        """The labels that each instance takes in some candidate of its sample, `(n*m, c)` bool."""

    @property
    @abstractmethod
    def contents(self) -> tuple[Tensor, ...]:
        """The tensors that distinguish this set from others, for fingerprints."""

    @abstractmethod
    def contains(self, gold: Tensor) -> Tensor:
        """Whether the gold labels `(n, m)` of each sample are among its candidates, `(n,)` bool."""

    @abstractmethod
    def possible(self) -> Tensor:
        """Whether each sample has a candidate, `(n,)` bool."""

    @property
    @abstractmethod
    def impossible(self) -> Tensor | None:
        """The samples that were kept although no labels satisfy their formula, `(n,)` bool; None if there are none.

        They have no candidates: a count of 0, an empty support, a log-probability of -inf. Pruning ignores them,
        `top_k`, `draw` and `to_candidates` return no rows for them, and losses raise an error.
        """

    @abstractmethod
    def narrowed(self, allowed: Tensor) -> Self:
        """As `restrict`, but samples may lose their last candidate; `possible` tells which have one left."""

    @abstractmethod
    def _log_probability(self, log_probs: Tensor) -> Tensor:
        """As `log_probability`, for a checked argument; in any precision."""

    @abstractmethod
    def _entropy(self, log_probs: Tensor) -> Tensor:
        """As `entropy`, for a checked argument; in any precision."""

    def log_probability(self, log_probs: Tensor) -> Tensor:
        """log Σ_σ Π_j p(σ(j)): the log-probability that the labels satisfy each sample's formula.

        Args:
            log_probs: the classifier's output, `(n, m, c)`.

        Returns:
            `(n,)`, differentiable; -inf, with zero gradient, if the classifier rules out every candidate. A listed
            candidate that occurs twice counts twice.

        Raises:
            InputError: if `log_probs` has another shape or device.
        """
        check_log_probs(log_probs, self)
        return self._log_probability(log_probs).to(log_probs.dtype)

    def entropy(self, log_probs: Tensor) -> Tensor:
        """The entropy −Σ_σ q(σ) log q(σ) of each sample's candidates, q ∝ Π_j p(σ(j)), `(n,)`, in nats; differentiable.

        This is the regulariser of Ahmed et al. (2022). A sample whose candidates are all ruled out has entropy 0. You
        can also pass scores before a softmax, because adding a constant to all labels of a slot changes nothing.

        Args:
            log_probs: the classifier's output, `(n, m, c)`.

        Raises:
            InputError: if `log_probs` has another shape or device.
        """
        check_log_probs(log_probs, self)
        return self._entropy(log_probs).to(log_probs.dtype)

    @abstractmethod
    def _outputs(self, log_probs: Tensor, k: int | None) -> Tensor:
        """As `output_probabilities`, for checked arguments."""

    def batch(self, samples: Tensor | Sequence[int] | slice) -> Self:
        """The set of the given samples.

        Args:
            samples: ids in the wanted order (an id may occur twice), a mask `(n,)` bool, or a slice.

        Raises:
            InputError: if an id is out of range, or a mask has another shape.
        """
        return self.select(known_samples(samples, self))

    @abstractmethod
    def select(self, ids: Tensor) -> Self:
        """As `batch`, for `ids (b,)` on the set's device; they are not checked."""

    @abstractmethod
    def span(self, first: int, last: int) -> Self:
        """The set of the samples `first` to `last - 1`, as a view.

        Raises:
            InputError: if there are no such samples.
        """

    @abstractmethod
    def to(self, device: torch.device | str) -> Self:
        """The same set on another device."""

    @abstractmethod
    def _best(self, log_probs: Tensor, k: int) -> Candidates:
        """The `k` most probable candidates of each sample, best first."""

    @abstractmethod
    def _drawn(self, per_sample: int, generator: torch.Generator, log_probs: Tensor | None) -> Candidates:
        """Different candidates of each sample at random: uniformly, or from the classifier's distribution."""

    @abstractmethod
    def _all(self) -> Candidates:
        """Every candidate."""

    @property
    def classes(self) -> int:
        """The length of the label axis, `c`."""
        return self.kinds[-1].stop

    @property
    def lengths(self) -> Tensor:
        """How many slots each sample uses, `(n,)`."""
        return (self.kind >= 0).sum(1)

    @cached_property
    def plain(self) -> bool:
        """Whether every slot is used and has the first kind of label, in this set or in one that it was taken from."""
        return not bool(self.kind.any())

    @cached_property
    @outside_inference_mode
    def log_counts(self) -> Tensor:
        """The log of the number of candidates of each sample, `(n,)`, in double precision if the device has it."""
        return self.log_probability(widened(self.zeros()))

    @cached_property
    @outside_inference_mode
    def first(self) -> Tensor:
        """One candidate of each sample, `(n, m)`; -1 in unused slots, and where a sample has none."""
        return self.top_k(self.zeros(), 1).first

    def zeros(self) -> Tensor:
        """Log-probabilities of 0 for every label, `(n, m, c)`."""
        return torch.zeros(self.samples, self.slots, self.classes, device=self.device)

    def restrict(self, allowed: Tensor) -> Self:
        """Keep the candidates whose every label is allowed.

        Args:
            allowed: `(n*m, c)` bool.

        Returns:
            The same kind of set.

        Raises:
            InputError: if a sample would lose its last candidate, or `allowed` has another shape.
        """
        restricted = self.narrowed(allowed)
        check_none_emptied(self, restricted.possible())
        return restricted

    def marginals(self, log_probs: Tensor) -> Tensor:
        """The posterior probability of each label in each slot, given the formula, `(n, m, c)`, without gradient.

        Args:
            log_probs: the classifier's output, `(n, m, c)`.

        Raises:
            InputError: if `log_probs` has another shape or device.
        """
        check_log_probs(log_probs, self)
        with torch.inference_mode(False), torch.enable_grad():  # the caller may be in inference mode
            logs = log_probs.detach().clone().requires_grad_()
            return torch.autograd.grad(self.log_probability(logs).sum(), logs)[0]

    def output_probabilities(self, log_probs: Tensor, k: int | None = None) -> Tensor:
        """The probability of each possible output, for a set with one "sample" for each output.

        A set that is not listed must not be restricted, and must not have partial or observed labels, unless `k` is
        given.

        Args:
            log_probs: the classifier's output for any number of samples, `(b, m, c)`.
            k: add up only the `k` most probable candidates of each output.

        Returns:
            `(b, n)`, differentiable.

        Raises:
            InputError: if the set has restricted or observed labels, or is one of alignments, or `log_probs` does not
                fit.
        """
        check_log_probs(log_probs, self, any_samples=True)
        k = None if k is None else whole_number(k, "k")
        if self.impossible is None:
            return self._outputs(log_probs, k).to(log_probs.dtype)
        ids = (~self.impossible).nonzero()[:, 0]
        some = self.select(ids)._outputs(log_probs, k).to(log_probs.dtype)
        return log_probs.new_zeros(len(log_probs), self.samples).index_copy(1, ids, some)

    @outside_inference_mode
    def top_k(self, log_probs: Tensor, k: int) -> Candidates:
        """The `k` most probable candidates of each sample, best first; all candidates if a sample has fewer.

        Args:
            log_probs: the classifier's output, `(n, m, c)`.
            k: how many.

        Returns:
            These candidates, listed.

        Raises:
            InputError: `log_probs` has another shape or device, or is NaN or +inf in a used slot.
            BudgetError: there would be too many rows.
        """
        log_probs, k = self._choosable(log_probs), self._affordable(whole_number(k, "k"))
        return self._rows_of_possible(lambda own, ids: own._best(log_probs[ids], k))

    @outside_inference_mode
    def draw(self, per_sample: int, seed: int = 0, log_probs: Tensor | None = None) -> Candidates:
        """At most `per_sample` candidates of each sample, drawn at random; one that is listed twice counts as two.

        Args:
            per_sample: how many to draw.
            seed: the seed of the random draws.
            log_probs: `(n, m, c)`: draw from the classifier's distribution over the candidates, and keep each candidate
                once. Without it, draw uniformly and without replacement.

        Returns:
            The drawn candidates, listed.

        Raises:
            InputError: if a number is out of range, or `log_probs` does not fit.
            BudgetError: if there would be too many rows.

        Examples:
            >>> from clipper import Lattice
            >>> from clipper.candidates.rules import SUM
            >>> lattice = Lattice.from_rule(*SUM, targets=[8, 150], slots=[2, 30], classes=10)
            >>> lattice.draw(100).counts
            [9, 100]
        """
        per_sample, generator = whole_number(per_sample, "per_sample"), seeded(seed)
        if log_probs is None:
            affordable = self._affordable(per_sample)
            return self._rows_of_possible(lambda own, _: own._drawn(affordable, generator, None))
        logs = self._choosable(log_probs)
        self._check_rows(per_sample * self.samples)
        return self._rows_of_possible(lambda own, ids: own._drawn(per_sample, generator, logs[ids]))

    @outside_inference_mode
    def to_candidates(self, budget: int | None = None) -> Candidates:
        """List every candidate as a row, in the order of `Candidates.from_rule`.

        Args:
            budget: the largest number of rows; the default takes some seconds.

        Returns:
            The listed set; a listed set returns itself.

        Raises:
            BudgetError: if there are more candidates.
        """
        self._check_rows(sum(self.counts), None if budget is None else whole_number(budget, "budget", least=0))
        return self._rows_of_possible(lambda own, _: own._all())

    @property
    def _all_possible(self) -> bool:
        """Whether every sample is known to have a candidate, from which the kinds of its slots can be read."""
        return self.impossible is None

    def _rows(self, labels: Tensor, sample: Tensor) -> Candidates:
        """`labels (rows, m)` of each row's `sample (rows,)`, ascending, as a listed set."""
        from clipper.candidates.table import Candidates, offsets_of

        offsets = offsets_of(occurrences(sample, self.samples))
        kind = None if self._all_possible else self.kind
        rows = Candidates(labels.to(smallest_type(self.kinds)), offsets, self.kinds, kind)
        rows.__dict__["sample"] = sample
        return rows

    def _rows_of_possible(self, ask: Callable[[Self, Tensor | slice], Candidates]) -> Candidates:
        """The result of `ask` for the samples that have candidates and their ids; other samples get no rows."""
        if self.impossible is None:
            return ask(self, slice(None)) if self.samples else self._nothing()
        ids = (~self.impossible).nonzero()[:, 0]
        found = ask(self.select(ids), ids) if len(ids) else self._nothing()
        return self._rows(found.labels, ids[found.sample])

    def _choosable(self, log_probs: Tensor) -> Tensor:
        check_log_probs(log_probs, self)
        check_choosable(log_probs, labels_not_read(self))
        return log_probs.detach()

    def _nothing(self) -> Candidates:
        """The empty set: no samples."""
        nothing = torch.zeros(0, dtype=torch.long, device=self.device)
        return self._rows(nothing.view(0, 1).expand(0, self.slots), nothing)

    def _affordable(self, per_sample: int) -> int:
        """`per_sample`, limited to the most candidates of a sample. Raises if the rows of all samples are too many."""
        if per_sample * self.samples > self.LISTED:
            per_sample = min(per_sample, max(self.counts, default=1))
            self._check_rows(sum(min(per_sample, count) for count in self.counts))
        return per_sample

    def _check_rows(self, rows: int, budget: int | None = None) -> None:
        budget = self.LISTED if budget is None else budget
        if rows > budget:
            raise BudgetError(
                f"there are {number_in_words(rows)} candidates, more than the budget of {budget:,}. Use the set as it "
                "is, take fewer with draw() or top_k(), or raise budget= of to_candidates if memory and time allow"
            )


def must_be_candidates(value: object, what: str = "candidates") -> CandidateSet:
    """The value, if it is a set of candidates.

    Raises:
        InputError: if it is not.
    """
    if isinstance(value, CandidateSet):
        return value
    kept = isinstance(getattr(value, "candidates", None), CandidateSet)
    advice = (
        "pass its .candidates"
        if kept
        else "build them with Candidates.from_rule, from_lists or from_tensors, or Lattice.from_rule"
    )
    raise InputError(
        f"expected {what} to be Candidates, a Lattice or a Formula, got a {type(value).__name__}: {advice}"
    )


def check_none_emptied(candidates: CandidateSet, left: Tensor) -> None:
    """Raise unless every sample that had a candidate keeps one: `left (n,)` bool is true for samples that do."""
    kept = left if candidates.impossible is None else left | candidates.impossible
    check_nonempty(kept.long(), what="would lose their last candidate")


def check_satisfiable(candidates: CandidateSet) -> None:
    """Refuse samples without candidates, for callers that need a candidate of every sample."""
    if candidates.impossible is not None:
        ids = candidates.impossible.nonzero()[:, 0].tolist()
        named = ", ".join(map(str, ids[:5])) + (", …" if len(ids) > 5 else "")
        raise InputError(
            f"expected at least one candidate per sample, but no labels satisfy the formula of {len(ids)} of "
            f"{candidates.samples} (sample {named}), which impossible='keep' kept; leave them out: "
            "possible = candidates.possible(), then candidates.batch(possible), and the same rows of log_probs"
        )


def check_any_possible(candidates: CandidateSet) -> None:
    """Refuse a pool without samples, or in which no sample has a candidate, for callers that learn from the pool."""
    if not candidates.samples:
        raise InputError("expected the candidates of at least one sample, got none")
    if not bool(candidates.possible().any()):
        raise InputError(
            f"expected a sample with candidates, but no labels satisfy any of {candidates.samples} formulas; check "
            "that rule, targets and classes belong together"
        )


def check_nonempty(counts: Tensor, *, what: str = "has no candidates") -> None:
    """Each sample must keep at least one candidate, `counts (n,)`."""
    empty = (counts == 0).nonzero().flatten()
    if len(empty):
        first = ", ".join(str(i) for i in empty[:5].tolist())
        raise InputError(
            f"expected at least one candidate per sample, but {len(empty)} of {len(counts)} "
            f"{what} (sample {first}{', …' if len(empty) > 5 else ''}): "
            "no labels satisfy their formula; correct it or leave these samples out"
        )


def check_log_probs(log_probs: Tensor, candidates: CandidateSet, *, any_samples: bool = False) -> None:
    """`log_probs` must be `(n, m, c)`, floating point, on the device of the candidates; `any_samples` for any `n`."""
    other = any_samples and isinstance(log_probs, Tensor) and log_probs.ndim
    samples = len(log_probs) if other else candidates.samples
    check_shape(log_probs, (samples, candidates.slots, candidates.classes))
    if log_probs.device != candidates.device:
        raise InputError(
            f"expected log_probs and candidates on one device, got {log_probs.device} and {candidates.device}; "
            "move the candidates with candidates.to(device)"
        )


def check_shape(log_probs: Tensor, expected: tuple[int, int, int]) -> None:
    """`log_probs` must be a dense tensor of floating point and of the expected shape."""
    if not isinstance(log_probs, Tensor) or log_probs.layout != torch.strided or log_probs.is_meta:
        raise InputError(f"expected log_probs as a dense tensor of shape {expected}, got {shown(log_probs)}")
    if tuple(log_probs.shape) != expected or not log_probs.is_floating_point():
        raise InputError(
            f"expected log_probs of shape (samples, slots, classes) = {expected}, floating point, "
            f"got {tuple(log_probs.shape)} of {log_probs.dtype}; pad unused slots and put all kinds on one label axis"
        )


def labels_not_read(candidates: CandidateSet) -> Tensor:
    """The labels of unused slots and of other kinds than their slot's, bool; it broadcasts to `(n, m, c)`."""
    if len(candidates.kinds) == 1:
        return (candidates.kind < 0)[..., None]
    kind = kind_of_label(torch.arange(candidates.classes, device=candidates.device), candidates.kinds)
    return kind != candidates.kind[..., None]


def check_choosable(log_probs: Tensor, not_read: Tensor) -> None:
    """Log-probabilities `(n, m, c)` must have an order, no NaN, no +inf, except of the labels that are `not_read`."""
    right = log_probs < torch.inf
    if not bool(right.all()) and not bool((right | not_read).all()):
        raise InputError("expected log_probs below infinity, got NaN or +inf; check the classifier's output")


def allowed_by_slot(allowed: Tensor, candidates: CandidateSet) -> Tensor:
    """`allowed (n*m, c)` bool as `(n, m, c)`."""
    n, m, c = candidates.samples, candidates.slots, candidates.classes
    allowed = as_tensor(allowed, "allowed")
    if allowed.shape != (n * m, c) or allowed.dtype != torch.bool:
        raise InputError(
            f"expected allowed of shape ({n * m}, {c}) bool, got {tuple(allowed.shape)} of {allowed.dtype}"
        )
    return allowed.view(n, m, c)


def gold_labels(gold: Tensor, candidates: CandidateSet) -> Tensor:
    """Gold labels `(n, m)`, checked and moved to the device of the candidates."""
    labels = as_tensor(gold, "gold")
    if labels.shape != (candidates.samples, candidates.slots):
        raise InputError(
            f"expected gold of shape ({candidates.samples}, {candidates.slots}), got {tuple(labels.shape)}"
        )
    return whole_numbers(labels, "gold labels").long().to(candidates.device)


def known_samples(samples: Tensor | Sequence[int] | slice, candidates: CandidateSet) -> Tensor:
    """The ids of some samples, `(b,)`, in the given order; a sample may occur twice. A mask selects samples."""
    n, device = candidates.samples, candidates.device
    if isinstance(samples, slice):
        try:
            samples = range(n)[samples]
        except (TypeError, ValueError) as error:
            raise InputError(f"expected a slice of whole numbers, got {samples}: {error}") from error
    ids = as_tensor(samples, "sample ids")  # checked on their own device: reading a value from a GPU would block
    if ids.dtype == torch.bool:
        if ids.shape != (n,):
            raise InputError(f"expected a mask of shape ({n},), one entry per sample, got {tuple(ids.shape)}")
        return ids.nonzero().flatten().to(device)
    if ids.dtype != torch.long:
        ids = whole_numbers(samples, "sample ids").long()
    if ids.ndim != 1 or not all_within(ids, 0, n - 1):
        raise InputError(f"expected sample ids in 0 … {n - 1} as one row, got {shown(samples)}")
    return ids.to(device)


def check_span(first: int, last: int, candidates: CandidateSet) -> None:
    """Refuse ends of a span that do not lie among the samples, or in the wrong order."""
    whole_number(last, "the end of a span", whole_number(first, "the start of a span", 0), candidates.samples)


@dataclass(frozen=True, eq=False)
class TemplateSet(CandidateSet):
    """Samples that share one description of several sets, the templates; restrictions are stored for each sample.

    Attributes:
        template: `(n,)`: the template of each sample.
        kinds: the kinds of label; one, unless several classifiers are trained.
        allowed: `(n, m, c)` bool: the labels that restrictions leave each instance; None for all.
    """

    PER_SAMPLE: ClassVar[tuple[str, ...]] = ("template", "allowed")
    """The fields that have a row for each sample."""

    template: Tensor
    kinds: tuple[Kind, ...]
    allowed: Tensor | None = None

    @property
    def samples(self) -> int:
        """How many samples there are, `n`."""
        return len(self.template)

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return self.template.device

    @property
    @abstractmethod
    def states(self) -> int:
        """How many numbers one pass over the set holds for each sample."""

    @property
    def shared(self) -> bool:
        """Whether the template alone determines the candidates of each sample."""
        return self.allowed is None

    @property
    def _all_possible(self) -> bool:
        """Whether every sample is known to have a candidate; a restriction may have emptied some."""
        return self.allowed is None and self.impossible is None

    @outside_inference_mode
    def narrowed(self, allowed: Tensor) -> Self:
        """As `restrict`, but samples may lose their last candidate; `possible` tells which have one left."""
        narrowed = allowed_by_slot(allowed, self)
        return replace(self, allowed=narrowed.clone() if self.allowed is None else narrowed & self.allowed)

    @outside_inference_mode
    def select(self, ids: Tensor) -> Self:
        """As `batch`, for `ids (b,)` on the set's device; they are not checked."""
        return self._taken(lambda rows: rows.index_select(0, ids))

    def span(self, first: int, last: int) -> Self:
        """The set of the samples `first` to `last - 1`, as a view."""
        check_span(first, last, self)
        return self._taken(lambda rows: rows[first:last])

    @outside_inference_mode
    def to(self, device: torch.device | str) -> Self:
        """The same set on another device."""
        device = usable_device(device)
        return self._taken(lambda rows: rows.to(device))

    @abstractmethod
    def _draws(self, draws: int, generator: torch.Generator, log_probs: Tensor | None) -> tuple[Tensor, Tensor]:
        """Draw `draws` candidates of each sample with replacement, and keep each different one once.

        Returns:
            `labels (rows, m)` and `sample (rows,)`, ascending.
        """

    @abstractmethod
    def _template_outputs(self, log_probs: Tensor) -> Tensor:
        """The probability of every template, `(b, templates)`, in one pass."""

    def _outputs(self, log_probs: Tensor, k: int | None) -> Tensor:
        if k is not None:
            every = torch.arange(self.samples, device=self.device).repeat(len(log_probs))
            repeated = log_probs.repeat_interleave(self.samples, 0)  # every sample with every output
            best = self.select(every).top_k(repeated, k)
            return best.log_probability(repeated).exp().view(len(log_probs), self.samples)
        if not self.shared:
            raise InputError(
                "expected outputs whose candidates depend on their target alone, got restricted, partial or observed "
                "labels; list the outputs with to_candidates(), pass k=, or pass them as they were before a restriction"
            )
        return self._template_outputs(log_probs).index_select(1, self.template)

    def _drawn(self, per_sample: int, generator: torch.Generator, log_probs: Tensor | None) -> Candidates:
        if log_probs is not None:
            return self._rows(*self._draws(per_sample, generator, log_probs))
        few = [i for i, count in enumerate(self.counts) if count < _FEW * per_sample]
        parts = []
        if few:
            seed = int(torch.randint(2**62, (), generator=generator))
            picked = self.batch(few).to_candidates(budget=_FEW * per_sample * len(few)).draw(per_sample, seed)
            parts.append((picked.labels.long(), torch.tensor(few, device=self.device)[picked.sample]))
        left, draws = sorted(set(range(self.samples)).difference(few)), 2 * per_sample + 8
        while left:  # a sample with too few different draws starts again with more: all sets stay equally likely
            labels, sample = self.batch(left)._draws(draws, generator, None)
            rank = torch.arange(len(sample), device=sample.device) - torch.searchsorted(sample, sample)
            enough = occurrences(sample, len(left)) >= per_sample
            keep = ((rank < per_sample) & enough[sample]).nonzero()[:, 0]
            parts.append((labels[keep], torch.tensor(left, device=self.device)[sample[keep]]))
            left = [i for i, fine in zip(left, enough.tolist(), strict=True) if not fine]
            draws *= 2
        labels, sample = (torch.cat(column) for column in zip(*parts, strict=True))
        order = sample.argsort(stable=True)
        return self._rows(labels[order], sample[order])

    def _taken(self, take: Callable[[Tensor], Tensor]) -> Self:
        """The same set, with `take` applied to every field that has a row for each sample."""
        found = ((name, getattr(self, name)) for name in self.PER_SAMPLE)
        changes: dict[str, Any] = {name: take(rows) for name, rows in found if rows is not None}
        taken = replace(self, **changes)
        if "plain" in self.__dict__:
            taken.__dict__["plain"] = self.plain
        return taken
