"""What a packed candidate table must satisfy, checked where the caller's data comes in."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from clipper.arguments import as_list, as_tensor, number_in_words, shown, whole_number, whole_numbers
from clipper.candidates.kinds import Kind
from clipper.errors import BudgetError, InputError

if TYPE_CHECKING:
    from clipper.candidates import CandidateSet
    from clipper.candidates.unlisted import Unlisted

_CHUNK = 1 << 20
"""Candidates checked together, so that memory stays bounded."""


def check_sample_ids(sample: Tensor, rows: int) -> None:
    """`sample (Ω,)` must be one number per candidate, ascending from 0 without gaps."""
    if sample.shape != (rows,):
        raise InputError(f"expected one sample id per candidate, shape ({rows},), got {tuple(sample.shape)}")
    step = sample.diff()
    if int(sample[0]) < 0 or bool((step < 0).any()):
        raise InputError(
            "expected sample ids from 0 in ascending order, got unsorted or negative ones; "
            "sort the rows by sample first (torch.sort with stable=True keeps their order)"
        )
    gaps = (step > 1).nonzero().flatten()
    if int(sample[0]) > 0 or len(gaps):
        before = -1 if int(sample[0]) > 0 else int(sample[gaps[0]])
        after = int(sample[0]) if before < 0 else int(sample[gaps[0] + 1])
        raise InputError(
            f"expected at least one candidate per sample, but sample {before + 1} has no candidates: the next sample "
            f"id is {after}. Nothing satisfies its formula: correct it, or leave it out and number the rest anew"
        )


def check_nonempty(counts: Tensor, *, what: str = "has no candidates") -> None:
    """Each sample must keep at least one candidate, `counts (n,)`."""
    empty = (counts == 0).nonzero().flatten()
    if len(empty):
        first = ", ".join(str(i) for i in empty[:5].tolist())
        raise InputError(
            f"expected at least one candidate per sample, but {len(empty)} of {len(counts)} "
            f"{what} (sample {first}{', …' if len(empty) > 5 else ''}): "
            "nothing satisfies their formula; correct it or leave these samples out"
        )


def check_labels(labels: Tensor, sample: Tensor, offsets: Tensor, kinds: tuple[Kind, ...]) -> None:
    """Labels must lie in range, and a slot must hold one kind of label in all candidates of its sample."""
    without = (labels[offsets[:-1]] == -1).all(1).nonzero().flatten()
    if len(without):
        raise InputError(
            f"expected at least one used slot per sample, got labels of -1 alone in sample {int(without[0])}"
        )
    for start in range(0, len(labels), _CHUNK):
        rows = slice(start, start + _CHUNK)
        _check_range(labels[rows], sample[rows], kinds)
        _check_kinds(labels[rows], sample[rows], labels[offsets[:-1]], kinds)


def _check_range(labels: Tensor, sample: Tensor, kinds: tuple[Kind, ...]) -> None:
    wrong = labels < -1
    if kinds[-1].stop <= torch.iinfo(labels.dtype).max:  # else no label of this type is too large
        wrong |= labels >= kinds[-1].stop
    if bool(wrong.any()):
        row, slot = (int(i) for i in wrong.nonzero()[0])
        raise InputError(
            f"expected labels 0 … {kinds[-1].stop - 1}, or -1 for an unused slot, "
            f"got {int(labels[row, slot])} in slot {slot} of sample {int(sample[row])}"
        )


def _check_kinds(labels: Tensor, sample: Tensor, first: Tensor, kinds: tuple[Kind, ...]) -> None:
    """`first (n, m)`: the labels of each sample's first candidate, whose kinds the others must share."""
    mixed = kind_of_label(labels, kinds) != kind_of_label(first, kinds)[sample]
    if bool(mixed.any()):
        row, slot = (int(i) for i in mixed.nonzero()[0])
        names = ", ".join(f"{k.name!r} {k.start}…{k.stop - 1}" for k in kinds)
        raise InputError(
            f"slot {slot} of sample {int(sample[row])} holds labels of different kinds in different candidates "
            f"(label {int(labels[row, slot])}; -1 marks an unused slot); the kinds are {names}. "
            "A slot is read by one classifier: give every candidate of a sample the same kinds"
        )


def kind_of_label(labels: Tensor, kinds: tuple[Kind, ...]) -> Tensor:
    """The index of each label's kind, -1 for unused slots; same shape as `labels`."""
    if len(kinds) == 1:
        return (labels >= 0).long().sub_(1)
    starts = torch.tensor([kind.start for kind in kinds], device=labels.device)
    return torch.searchsorted(starts, labels.long().contiguous(), right=True) - 1


def check_log_probs(log_probs: Tensor, candidates: CandidateSet | Unlisted) -> None:
    """`log_probs` must be `(n, m, c)`, floating point, on the device of the candidates."""
    expected = (candidates.samples, candidates.slots, candidates.classes)
    if not isinstance(log_probs, Tensor) or log_probs.layout != torch.strided:
        raise InputError(f"expected log_probs as a dense tensor of shape {expected}, got {shown(log_probs)}")
    if tuple(log_probs.shape) != expected or not log_probs.is_floating_point():
        raise InputError(
            f"expected log_probs of shape (samples, slots, classes) = {expected}, floating point, "
            f"got {tuple(log_probs.shape)} of {log_probs.dtype}; pad unused slots and put all kinds on one label axis"
        )
    if log_probs.device != candidates.device:
        raise InputError(
            f"expected log_probs and candidates on one device, got {log_probs.device} and {candidates.device}; "
            "move the candidates with candidates.to(device)"
        )


def check_any_log_probs(log_probs: Tensor, candidates: CandidateSet | Unlisted) -> None:
    """As `check_log_probs`, for any number of samples, `(b, m, c)`."""
    expected = (candidates.slots, candidates.classes)
    dense = isinstance(log_probs, Tensor) and log_probs.layout == torch.strided and log_probs.is_floating_point()
    if not dense or log_probs.device != candidates.device or log_probs.ndim != 3 or log_probs.shape[1:] != expected:
        raise InputError(
            f"expected log_probs of shape (b, {candidates.slots}, {candidates.classes}), floating point, on "
            f"{candidates.device}, got {shown(log_probs)}"
        )


def allowed_by_slot(allowed: Tensor, n: int, m: int, c: int) -> Tensor:
    """`allowed (n*m, c)` bool as `(n, m, c)`."""
    allowed = as_tensor(allowed, "allowed")
    if allowed.shape != (n * m, c) or allowed.dtype != torch.bool:
        raise InputError(
            f"expected allowed of shape ({n * m}, {c}) bool, got {tuple(allowed.shape)} of {allowed.dtype}"
        )
    return allowed.view(n, m, c)


def known_samples(samples: Tensor | Sequence[int] | slice, n: int, device: torch.device) -> Tensor:
    """The ids of some of `n` samples, `(b,)`, in the given order; a sample may come twice. A mask selects samples."""
    if isinstance(samples, slice):
        samples = _sliced(n, samples)
    ids = as_tensor(samples, "sample ids").to(device)
    if ids.dtype == torch.bool:
        if ids.shape != (n,):
            raise InputError(f"expected a mask of shape ({n},), one entry per sample, got {tuple(ids.shape)}")
        return ids.nonzero().flatten()
    if ids.dtype != torch.long:
        ids = whole_numbers(samples, "sample ids").to(device).long()
    if ids.ndim != 1 or (len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= n)):
        raise InputError(f"expected sample ids in 0 … {n - 1} as one row, got {shown(samples)}")
    return ids


def _sliced(n: int, part: slice) -> range:
    try:
        return range(n)[part]
    except (TypeError, ValueError) as error:
        raise InputError(f"expected a slice of whole numbers, got {part}: {error}") from error


def gold_labels(gold: Tensor, samples: int, slots: int, device: torch.device) -> Tensor:
    """Labels `(n, m)` to be looked for among the candidates, on their device."""
    labels = as_tensor(gold, "gold")
    if labels.shape != (samples, slots):
        raise InputError(f"expected gold of shape ({samples}, {slots}), got {tuple(labels.shape)}")
    return whole_numbers(labels, "gold labels").long().to(device)


def check_choosable(log_probs: Tensor, kind: Tensor) -> None:
    """Log-probabilities of used slots must have an order: no NaN, no +inf; `kind (n, m)` is -1 in unused slots."""
    right = log_probs < torch.inf
    if not bool(right.all()) and not bool((right | (kind < 0)[..., None]).all()):
        raise InputError("expected log_probs below infinity, got NaN or +inf; look at what the classifier returned")


def targets_and_lengths(targets: object, slots: object) -> tuple[list[Hashable], list[int]]:
    """One target and one number of slots for each sample, of which there must be one."""
    wanted = _targets(targets)
    one = not hasattr(slots, "__len__") or getattr(slots, "ndim", 1) == 0
    lengths = [whole_number(slots, "slots")] * len(wanted) if one else _lengths(slots)
    if len(lengths) != len(wanted) or not wanted or min(lengths) < 1:
        raise InputError(
            f"expected one positive number of slots per target and at least one target, "
            f"got {len(lengths)} slot numbers {shown(lengths[:5])} for {len(wanted)} targets"
        )
    return wanted, lengths


def _lengths(slots: object) -> list[int]:
    lengths = whole_numbers(slots, "slots")
    if lengths.ndim != 1:
        raise InputError(f"expected slots as one number or as a list with one for each sample, got {shown(slots)}")
    numbers: list[int] = lengths.tolist()
    return numbers


def _targets(targets: object) -> list[Hashable]:
    if getattr(targets, "ndim", 1) != 1:
        raise InputError(f"expected targets as a list with one for each sample, got {shown(targets)}")
    values: list[Hashable] = as_list(targets, "targets, one for each sample,")
    if set(map(type, values)) <= {int, bool, str}:
        return values
    return [_target(value, i) for i, value in enumerate(values)]


def _target(value: object, sample: int) -> Hashable:
    value = as_python(value)
    try:
        right = hash(value) is not None and value is not None and bool(value == value)  # NaN is not
    except Exception:
        right = False
    if not right:
        raise InputError(
            f"expected a hashable target that equals itself for each sample, such as a number or a tuple, "
            f"got {shown(value)} for sample {sample}"
        )
    return value


def as_python(value: Any) -> Any:
    """Python's own number for a tensor or an array of one, so that equal values are equal; else the same."""
    if isinstance(value, Tensor | np.ndarray | np.generic) and getattr(value, "ndim", 1) == 0:
        return value.item()
    return value


def domains_of_slots(domains: object, longest: int, classes: int) -> list[Sequence[int]]:
    """The labels that each slot may take, ascending."""
    if domains is None:
        return [range(classes)] * longest
    listed = as_list(domains, "domains, the labels of each slot,")
    rows = [_domain(domain, slot) for slot, domain in enumerate(listed)]
    if len(rows) < longest or not all(rows):
        raise InputError(f"expected a non-empty domain for each of {longest} slots, got {len(rows)}")
    for slot, domain in enumerate(rows):
        if domain[0] < 0 or domain[-1] >= classes:
            raise InputError(
                f"expected labels 0 … {classes - 1} in the domain of slot {slot}, got {shown(list(domain))}"
            )
    return list(rows[:longest])


def _domain(domain: object, slot: int) -> list[int]:
    labels = whole_numbers(list(domain) if isinstance(domain, set | frozenset) else domain, f"labels of slot {slot}")
    if labels.ndim != 1:
        raise InputError(f"expected the domain of slot {slot} as a list of labels, got {shown(domain)}")
    return sorted(set(labels.tolist()))


def check_longest(longest: int, budget: int) -> None:
    """A sample with more slots than the budget is not worth a start."""
    if longest > budget:
        raise BudgetError(
            f"a sample of {number_in_words(longest)} slots is over the budget of {budget:,}; "
            "raise budget= if memory and time allow"
        )


def called(function: Callable[..., Any], *arguments: object) -> Any:
    """What a caller's function gives; it must be hashable, and no tensor, which equals another one by no value."""
    value = as_python(function(*arguments))
    if isinstance(value, Tensor):
        raise TypeError("it returned a tensor; use tolist() or tuples")
    hash(value)
    return value
