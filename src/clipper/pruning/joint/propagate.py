"""Propagate: damped sum-product over the pool, for many states at once, and how probable a state is."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

import torch
from torch import Tensor, finfo

from clipper.pruning.joint.pool import Pool
from clipper.pruning.joint.potential import Potential


@dataclass(frozen=True)
class Schedule:
    """How messages are passed.

    Attributes:
        rounds: rounds of messages, at most.
        noise: log-odds of the noise in the first round; it fades until half of the rounds are over, as a hint does.
        coupling: the share of the coupling in the first round; it grows as the noise fades.
        still: the rounds end when no more than this share of the messages moves by more than this; 0: never.
    """

    rounds: int
    noise: float = 0.0
    coupling: float = 1.0
    still: float = 0.0


def propagate(
    pool: Pool,
    potential: Potential,
    messages: Tensor,
    schedule: Schedule,
    hint: Tensor | None = None,
    hidden: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, bool]:
    """Pass messages, and say whether they came to rest.

    Args:
        pool: the pool.
        potential: ψ.
        messages: to begin with, `(2P, c, states)`.
        schedule: how long, with how much noise.
        hint: log-odds that fade as the noise does, `(n*m, c, states)`.
        hidden: samples whose formula is left out, `(n, states)` bool.
        generator: of the noise.

    Returns:
        The last messages, and whether they were still.
    """
    fading = schedule.rounds // 2 if hint is not None or schedule.noise else 0
    # What came to rest stays as it is, so that a device need not be asked in every round.
    rests = torch.tensor(not len(messages), device=messages.device)
    pause = 1 if messages.device.type == "cpu" else isqrt(schedule.rounds)
    for step in range(schedule.rounds):
        left = max(0.0, 1 - step / fading) if fading else 0.0
        field = pool.heard(messages).add_(pool.unary)
        if left and schedule.noise:
            field += torch.randn(field.shape, generator=generator).to(field).mul_(schedule.noise * left)
        if left and hint is not None:
            field.add_(hint, alpha=left)
        belief = pool.beliefs(field, hidden)
        senders = cavity_beliefs(pool, messages, belief)
        sent = potential.messages(pool, senders, belief, 1 - left * (1 - schedule.coupling))
        sent.div_(sent.sum(1, keepdim=True))
        # Heavier damping calms what oscillates.
        sent.lerp_(messages, 1 / 2 if 2 * step < schedule.rounds + fading else 1 - (1 / 2) ** 2)
        if schedule.still and not left and len(sent):
            sent = torch.where(rests, messages, sent)
            rests = rests | (((sent - messages).abs() > schedule.still).float().mean() <= schedule.still)
            messages = sent
            if not step % pause and bool(rests):
                break
        messages = sent
    return messages, bool(rests)


def silence(pool: Pool, states: int) -> Tensor:
    """Messages that say nothing, `(2P, c, states)`."""
    return pool.unary.new_full((2 * len(pool.edges), pool.classes, states), 1 / pool.classes)


def cavity_beliefs(pool: Pool, messages: Tensor, belief: Tensor) -> Tensor:
    """What each message's sender believes, `(2P, c, states)`, apart from what the receiver told it."""
    pairs = len(pool.edges)
    believed = belief.index_select(0, pool.edges.source)
    believed[:pairs].div_(messages[pairs:])
    believed[pairs:].div_(messages[:pairs])
    return believed.div_(believed.sum(1, keepdim=True).clamp_(min=finfo(believed.dtype).tiny))


@dataclass(frozen=True, eq=False)
class Score:
    """How probable states are: Bethe's approximation of log Z, term by term.

    Attributes:
        samples: `(n, states)`: of each sample.
        pairs: `(P, states)`: of each pair; the total is what samples have, less what pairs count twice.
    """

    samples: Tensor
    pairs: Tensor

    @property
    def total(self) -> Tensor:
        """`(states,)`"""
        return self.samples.double().sum(0) + self.pairs.double().sum(0)


def score(pool: Pool, potential: Potential, messages: Tensor, hidden: Tensor | None = None) -> Score:
    """Bethe's log Z of the states whose messages `(2P, c, states)` came to rest."""
    field = pool.heard(messages).add_(pool.unary)
    belief = pool.beliefs(field, hidden)
    senders = cavity_beliefs(pool, messages, belief)
    met = (senders[: len(pool.edges)] * messages[len(pool.edges) :]).sum(1)  # (P, states)
    sent = potential.messages(pool, senders, belief)[: len(pool.edges)].sum(1)
    return Score(pool.evidence(field, hidden), sent.log() - met.clamp(min=finfo(met.dtype).tiny).log())


def exact_probabilities(
    pool: Pool, potential: Potential, sharpness: float, rows: dict[int, Tensor]
) -> dict[int, Tensor]:
    """The probability of each candidate of a few samples, by summing over all combinations of their candidates.

    Args:
        pool: the pool; no pair may lead out of these samples.
        potential: ψ.
        sharpness: the power that ψ is raised to.
        rows: by sample, its candidates' labels, `(Ω_i, m)`.
    """
    slots, axis = pool.factor.shape[1], {sample: place for place, sample in enumerate(rows)}
    labels = list(rows.values())
    unary = torch.nn.functional.pad(pool.unary[:, :, 0], (1, 0)).double()  # label -1 says nothing
    logits = torch.zeros([len(row) for row in labels], dtype=torch.double, device=unary.device)

    def along(values: Tensor, *axes: int) -> Tensor:
        return values.view([len(row) if place in axes else 1 for place, row in enumerate(labels)])

    for sample, place in axis.items():
        of_slot = unary[sample * slots : (sample + 1) * slots].gather(1, labels[place].T.long() + 1)
        logits += along(of_slot.sum(0), place)
    ids = torch.tensor(list(rows), device=unary.device)
    inside = torch.isin(pool.edges.first // slots, ids).nonzero()[:, 0]
    tables = potential.tables(pool, inside).double().log() * sharpness
    ends = zip(pool.edges.first[inside].tolist(), pool.edges.second[inside].tolist(), strict=True)
    for (first, second), table in zip(ends, tables, strict=True):
        (i, a), (j, b) = divmod(first, slots), divmod(second, slots)
        left, right = labels[axis[i]][:, a].long(), labels[axis[j]][:, b].long()
        if i == j:
            logits += along(table[left, right], axis[i])
        elif axis[i] < axis[j]:
            logits += along(table[left][:, right], axis[i], axis[j])
        else:
            logits += along(table[left][:, right].T.contiguous(), axis[i], axis[j])
    joint = logits.flatten().softmax(0).view(logits.shape)
    return {
        sample: joint.sum([d for d in range(joint.ndim) if d != place]) if joint.ndim > 1 else joint
        for sample, place in axis.items()
    }
