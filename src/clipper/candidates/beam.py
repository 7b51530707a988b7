"""Beam search for candidates that the classifier finds probable, for rules that are too large for a lattice."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from clipper.arguments import shown, whole_number
from clipper.candidates.base import check_choosable, check_shape, outside_inference_mode
from clipper.candidates.graph_building import BUDGET
from clipper.candidates.kinds import Classes, kinds_of, smallest_type
from clipper.candidates.packed import ranked
from clipper.candidates.rules import Machine, checked_machine
from clipper.candidates.table import Candidates, check_labels, offsets_of
from clipper.candidates.task import read_task
from clipper.errors import BudgetError, InputError

_UNKNOWN, _NOWHERE = -2, -1
"""Entries of the table of transitions: a step that was not computed yet, and a dead end."""
_CELLS = 1 << 27
"""Largest number of labels in all prefixes at a time."""


@outside_inference_mode
def beam_search(
    machine: Machine,
    targets: Sequence[Hashable] | Tensor,
    slots: int | Sequence[int],
    classes: Classes,
    log_probs: Tensor,
    *,
    width: int = 256,
    ways: int = 4,
    domains: Sequence[Sequence[int]] | None = None,
    known: Candidates | None = None,
) -> Candidates:
    """Candidates that the classifier finds probable, by a beam search over prefixes of labels.

    All results are candidates, but some candidates may be missing. Pass the results as `known` the next time, so that
    they are kept.

    Args:
        machine: the rule.
        targets: the target of each of the `n` samples.
        slots: how many inputs a sample has; a list for samples of different lengths.
        classes: the number of labels, or a mapping from each kind of label to its number.
        log_probs: the classifier's output, `(n, m, c)`.
        width: the number of prefixes of each sample to keep after each slot.
        ways: how many of these prefixes may have the same state.
        domains: the labels that each slot may have; all labels if not given.
        known: candidates found before, or drawn uniformly; they are kept.

    Returns:
        The candidates that were found, each once.

    Raises:
        InputError: if nothing was found for a sample, or a slot of a sample has labels of different kinds.
        BudgetError: if the beam takes too much memory.

    Examples:
        >>> from clipper.candidates.rules import HWF, run
        >>> log_probs = torch.randn(2, 5, 12, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
        >>> turn = [range(9), range(9, 12)] * 2 + [range(9)]
        >>> found = beam_search(HWF, [14, 9], 5, 12, log_probs, domains=turn)
        >>> {run(HWF, row) for row in found.labels[found.sample == 0].tolist()}
        {14}
    """
    kinds = kinds_of(classes)
    wanted, lengths, taken = read_task(targets, slots, domains, kinds[-1].stop, BUDGET)
    machine = checked_machine(machine)
    width, ways = (min(whole_number(number, "width and ways"), 2**62) for number in (width, ways))
    _check(log_probs, (len(wanted), max(lengths), kinds[-1].stop), known)
    labels, sample = _search(machine, wanted, torch.tensor(lengths), taken, ranked(log_probs), width, ways)
    if known is not None:
        labels = torch.cat([known.labels.long().to(labels.device), labels])
        sample = torch.cat([known.sample.to(sample.device), sample])
    counts = torch.bincount(sample, minlength=len(wanted))
    if not bool(counts.all()):
        raise InputError(
            f"expected at least one candidate per sample, but the beam found none of sample {int(counts.argmin())} "
            f"(and of {int((counts == 0).sum())} samples in all); widen it from width={width}, or pass known= "
            "candidates to start from"
        )
    order = sample.argsort(stable=True)
    labels, offsets = labels[order], offsets_of(counts)
    check_labels(labels, sample[order], offsets, kinds)
    return Candidates(labels.to(smallest_type(kinds)), offsets, kinds).distinct()


def _search(
    machine: Machine,
    targets: list[Hashable],
    lengths: Tensor,
    domains: list[Sequence[int]],
    log_probs: Tensor,
    width: int,
    ways: int,
) -> tuple[Tensor, Tensor]:
    """The candidates that the beam finds: `labels (rows, m)` and `sample (rows,)`."""
    states = _States(machine, log_probs.shape[2])
    n, m, _ = log_probs.shape
    lengths = lengths.to(log_probs.device)
    state = torch.zeros(n, 1, dtype=torch.long, device=log_probs.device)
    score = log_probs.new_zeros(n, 1)
    prefix = torch.full((n, 1, m), -1, device=log_probs.device)
    found: list[tuple[Tensor, Tensor]] = []
    for depth, domain in enumerate(domains):
        if state.numel() * len(domain) * m > _CELLS:
            raise BudgetError(
                f"a beam of {width:,} for {n} samples of {m} slots takes too much memory after {depth} slots; narrow it"
            )
        choice = torch.tensor(domain, device=log_probs.device)
        after = states.after(state, domain)  # (n, beam, a)
        value = score[..., None] + log_probs[:, depth, choice][:, None]
        value = torch.where((after >= 0) & (lengths > depth)[:, None, None], value, -torch.inf)
        longer = prefix[:, :, None].repeat(1, 1, len(domain), 1)
        longer[..., depth] = choice
        state, value, longer = after.flatten(1), value.flatten(1), longer.flatten(1, 2)  # (n, beam * a, …)
        ending = states.accepted(state, targets) & (lengths == depth + 1)[:, None] & (value > -torch.inf)
        found.append((longer[ending], ending.nonzero()[:, 0]))
        keep = _kept(state, value, width, ways)  # (n, beam)
        state, score = state.gather(1, keep).clamp(min=0), value.gather(1, keep)
        prefix = longer.gather(1, keep[..., None].expand(-1, -1, m))
    return torch.cat([labels for labels, _ in found]), torch.cat([sample for _, sample in found])


def _kept(state: Tensor, value: Tensor, width: int, ways: int) -> Tensor:
    """The indices of the best `width` prefixes of each row, at most `ways` with the same state, `(n, width)`."""
    order = value.argsort(dim=1, descending=True, stable=True)
    by_state = state.gather(1, order).argsort(dim=1, stable=True)  # within a state, the best first
    ranked = state.gather(1, order).gather(1, by_state)
    start = torch.searchsorted(ranked, ranked)
    rank = torch.arange(state.shape[1], device=state.device) - start
    surplus = torch.empty_like(rank).scatter_(1, order.gather(1, by_state), rank) >= ways
    limited = value.masked_fill(surplus, -torch.inf)
    return limited.topk(min(width, limited.shape[1]), dim=1).indices


class _States:
    """A cache of the machine's transitions: the states reached so far are numbered, and each step is computed once."""

    def __init__(self, machine: Machine, classes: int) -> None:
        self._machine = machine
        self._number: dict[Hashable, int] = {machine.start: 0}
        self._states: list[Hashable] = [machine.start]
        self._table = torch.full((1, classes), _UNKNOWN)

    def after(self, state: Tensor, domain: Sequence[int]) -> Tensor:
        """The states that follow `state (n, beam)`, `(n, beam, a)`; -1 for a dead end."""
        choice = torch.tensor(domain)
        distinct, place = torch.unique(state.cpu(), return_inverse=True)
        fresh = (self._table[distinct][:, choice] == _UNKNOWN).any(1)
        for number in distinct[fresh].tolist():
            row = [self._step(self._states[number], label) for label in domain]
            missing = len(self._states) - len(self._table)
            if missing > 0:
                room = torch.full((max(missing, len(self._table)), self._table.shape[1]), _UNKNOWN)
                self._table = torch.cat([self._table, room])
            self._table[number, choice] = torch.tensor(row)
        return self._table[distinct][:, choice][place].to(state.device)

    def accepted(self, state: Tensor, targets: list[Hashable]) -> Tensor:
        """Whether samples that end in `state (n, beam)` have their target, bool; -1 is no state."""
        distinct, place = torch.unique(state.cpu(), return_inverse=True)
        goals = {target: i for i, target in enumerate(dict.fromkeys(targets))}
        given = [goals.get(self._machine.accept(self._states[i]), -1) if i >= 0 else -1 for i in distinct.tolist()]
        wanted = torch.tensor([goals[target] for target in targets])
        return (torch.tensor(given)[place] == wanted[:, None]).to(state.device)

    def _step(self, state: Hashable, label: int) -> int:
        after = self._machine.step(state, label)
        if after is None:
            return _NOWHERE
        if after not in self._number:
            self._number[after] = len(self._states)
            self._states.append(after)
        return self._number[after]


def _check(log_probs: Tensor, expected: tuple[int, int, int], known: Candidates | None) -> None:
    check_shape(log_probs, expected)
    check_choosable(log_probs, torch.zeros(1, dtype=torch.bool, device=log_probs.device))
    if known is None:
        return
    if not isinstance(known, Candidates):
        raise InputError(f"expected known as Candidates, got {shown(known)}")
    got = (known.samples, known.slots, known.classes)
    if got != expected:
        raise InputError(f"expected known candidates of (samples, slots, classes) = {expected}, got {got}")
