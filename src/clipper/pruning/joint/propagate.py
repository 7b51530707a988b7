"""Propagate: damped sum-product over the pool, for many states at once, and how probable a state is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt, prod

import torch
from torch import Tensor, finfo

from clipper.arguments import widened
from clipper.pruning.joint.pool import Pool
from clipper.pruning.joint.potential import Potential
from clipper.pruning.joint.settings import InferenceSettings
from clipper.pruning.ranks import ALONE, Ranks


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
        messages: to begin with, `(2P, c, states)`; they are overwritten.
        schedule: how long, with how much noise.
        hint: log-odds that fade as the noise does, `(n*m, c, states)`.
        hidden: samples whose formula is left out, `(n, states)` bool.
        generator: of the noise.

    Returns:
        The last messages, and whether they were still.
    """
    fading = schedule.rounds // 2 if hint is not None or schedule.noise else 0
    # What came to rest stays as it is, so that a device need not be asked in every round.
    rests = torch.tensor(not pool.edges.count, device=messages.device)
    many = 2 * pool.edges.count * messages.shape[1] * messages.shape[2]  # on all ranks together
    pause = 1 if messages.device.type == "cpu" else isqrt(schedule.rounds)
    for step in range(schedule.rounds):
        pool.edges.shard.traffic.rounds += 1
        left = max(0.0, 1 - step / fading) if fading else 0.0
        field = pool.heard(messages).add_(pool.unary)
        if left and schedule.noise:
            field += pool.edges.shard.normal(field.shape, generator).to(field).mul_(schedule.noise * left)
        if left and hint is not None:
            field.add_(hint, alpha=left)
        belief = pool.beliefs(field, hidden)
        weights = potential.weights(pool, belief, 1 - left * (1 - schedule.coupling))
        # Heavier damping calms what oscillates.
        kept = 1 / 2 if 2 * step < schedule.rounds + fading else 1 - (1 / 2) ** 2
        looks = bool(schedule.still) and not left and bool(pool.edges.count)
        moved = torch.zeros_like(rests, dtype=torch.long)
        for pairs, senders in cavities(pool, messages, belief):
            sent = weights.messages(pool.edges.delivered(senders, pairs), pairs)
            sent.div_(sent.sum(1, keepdim=True))
            ways = pool.edges.both_ways(messages, pairs)
            for old, new in zip(ways, sent.chunk(len(ways)), strict=True):
                new.lerp_(old, kept)
                if looks and pause > 1:
                    torch.where(rests, old, new, out=new)
                if looks:
                    moved += ((new - old).abs() > schedule.still).sum()
                old.copy_(new)
        if looks:
            rests = rests | (pool.ranks.total(moved) <= schedule.still * many)
            if not step % pause and bool(rests):
                break
    return messages, bool(rests)


def silence(pool: Pool, states: int) -> Tensor:
    """Messages that say nothing, `(2P, c, states)`."""
    shape = (pool.edges.inner + len(pool.edges), pool.classes, states)
    return _message_memory(pool.unary, shape).fill_(1 / pool.classes)


def side_by_side(*messages: Tensor) -> Tensor:
    """The states of some messages `(2P, c, …)` one after the other, as new messages."""
    shape = (*messages[0].shape[:2], sum(some.shape[2] for some in messages))
    return torch.cat(messages, 2, out=_message_memory(messages[0], shape))


def _message_memory(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Room for messages, which the system gets back as soon as they are gone.

    Messages take most of the memory. A block that is larger than `InferenceSettings.kept_when_freed` is the system's
    at once when it is freed; smaller ones stay with the process, and soon as much lies idle as is used. So a smaller
    block is the beginning of a larger one, the rest of which is never touched and takes no memory.
    """
    numbers = prod(shape)
    large = like.device.type == "cpu" and numbers > InferenceSettings.block
    whole = max(numbers, InferenceSettings.kept_when_freed // like.element_size() + 1) if large else numbers
    return like.new_empty(whole)[:numbers].view(shape)


def cavities(pool: Pool, messages: Tensor, belief: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Some pairs, and what the sender of each of their messages believes apart from what the receiver told it.

    Block by block: `k` pairs, and `(2k, c, states)`, one way and then the other. Of pairs with another rank's
    instances, `(k, c, states)`: what the own ends believe.
    """
    edges = pool.edges
    for pairs in edges.parts(messages.shape[1] * messages.shape[2]):
        ways = edges.both_ways(messages, pairs)
        ends = [edges.first[pairs], edges.second[pairs]][: len(ways)]
        believed = belief.index_select(0, torch.cat(ends))
        for sender, told in zip(believed.chunk(len(ways)), reversed(ways), strict=True):
            sender.div_(told)
        yield pairs, believed.div_(believed.sum(1, keepdim=True).clamp_(min=finfo(believed.dtype).tiny))


@dataclass(frozen=True, eq=False)
class Score:
    """How probable states are: Bethe's approximation of log Z, term by term.

    Attributes:
        samples: `(n, states)`: of each sample.
        pairs: `(P, states)`: of each pair; the total is what samples have, less what pairs count twice. Pairs that
            count on another rank have nothing here.
        ranks: those who share the pool.
    """

    samples: Tensor
    pairs: Tensor
    ranks: Ranks = ALONE

    @property
    def total(self) -> Tensor:
        """`(states,)`"""
        return self.ranks.total(widened(self.samples).sum(0) + widened(self.pairs).sum(0))


def score(pool: Pool, potential: Potential, messages: Tensor, hidden: Tensor | None = None) -> Score:
    """Bethe's log Z of the states whose messages `(2P, c, states)` came to rest."""
    field = pool.heard(messages).add_(pool.unary)
    belief = pool.beliefs(field, hidden)
    weights = potential.weights(pool, belief)
    pairs = messages.new_empty(len(pool.edges), messages.shape[2])
    for some, senders in cavities(pool, messages, belief):
        *_, told = pool.edges.both_ways(messages, some)
        sender = senders[: len(told)]
        met = (sender * told).sum(1).clamp(min=finfo(sender.dtype).tiny)
        pairs[some] = weights.messages(sender, some).sum(1).log() - met.log()
    pairs[pool.edges.counted.stop :] = 0
    return Score(pool.evidence(field, hidden), pairs, pool.ranks)


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
    unary = widened(torch.nn.functional.pad(pool.unary[:, :, 0], (1, 0)))  # label -1 says nothing
    logits = unary.new_zeros([len(row) for row in labels])

    def along(values: Tensor, *axes: int) -> Tensor:
        return values.view([len(row) if place in axes else 1 for place, row in enumerate(labels)])

    for sample, place in axis.items():
        of_slot = unary[sample * slots : (sample + 1) * slots].gather(1, labels[place].T.long() + 1)
        logits += along(of_slot.sum(0), place)
    ids = torch.tensor(list(rows), device=unary.device)
    inside = torch.isin(pool.edges.first // slots, ids).nonzero()[:, 0]
    tables = widened(potential.tables(pool, inside)).log() * sharpness
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
