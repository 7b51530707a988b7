"""Propagate: damped sum-product over the pool for many states at once, and the score of a state."""

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
        rounds: the largest number of rounds.
        noise: log-odds of the noise in the first round. Noise and hints decrease to 0 in the first half of the rounds.
        coupling: the share of the coupling in the first round; it increases to 1 while the noise decreases.
        still: the tolerance: rounds end when at most this share of the messages changes by more than this; 0 for never.
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
    """Pass messages until they converge or the rounds end.

    Args:
        pool: the pool.
        potential: ψ.
        messages: the initial messages, `(2P, c, states)`; they are overwritten.
        schedule: the number of rounds, the noise and the tolerance.
        hint: log-odds that decrease to 0 with the noise, `(n*m, c, states)`.
        hidden: samples whose formula is left out, `(n, states)` bool.
        generator: the random generator of the noise.

    Returns:
        The last messages, and whether they converged.
    """
    fading = schedule.rounds // 2 if hint is not None or schedule.noise else 0
    # Converged messages do not change any more, so the device need not be read in every round.
    converged = torch.tensor(not pool.edges.count, device=messages.device)
    many = 2 * pool.edges.count * messages.shape[1] * messages.shape[2]  # on all ranks together
    read_every = 1 if messages.device.type == "cpu" else isqrt(schedule.rounds)
    for step in range(schedule.rounds):
        left = max(0.0, 1 - step / fading) if fading else 0.0
        field = pool.heard(messages).add_(pool.unary)
        if left and schedule.noise:
            field += pool.edges.shard.normal(field.shape, generator).to(field).mul_(schedule.noise * left)
        if left and hint is not None:
            field.add_(hint, alpha=left)
        belief = pool.beliefs(field, hidden)
        weights = potential.weights(pool, belief, 1 - left * (1 - schedule.coupling))
        # Heavier damping stops oscillations.
        kept = 1 / 2 if 2 * step < schedule.rounds + fading else 1 - (1 / 2) ** 2
        checks = bool(schedule.still) and not left and bool(pool.edges.count)
        moved = torch.zeros_like(converged, dtype=torch.long)
        for pairs, senders in cavities(pool, messages, belief):
            sent = weights.messages(pool.edges.delivered(senders, pairs), pairs)
            sent.div_(sent.sum(1, keepdim=True))
            ways = pool.edges.both_ways(messages, pairs)
            for old, new in zip(ways, sent.chunk(len(ways)), strict=True):
                new.lerp_(old, kept)
                if checks and read_every > 1:
                    torch.where(converged, old, new, out=new)
                if checks:
                    moved += ((new - old).abs() > schedule.still).sum()
                old.copy_(new)
        if checks:
            converged = converged | (pool.ranks.total(moved) <= schedule.still * many)
            if not step % read_every and bool(converged):
                break
    return messages, bool(converged)


def zero_messages(pool: Pool, states: int) -> Tensor:
    """Uniform messages, `(2P, c, states)`: they carry no information."""
    shape = (pool.edges.inner + len(pool.edges), pool.classes, states)
    return _message_memory(pool.unary, shape).fill_(1 / pool.classes)


def side_by_side(*messages: Tensor) -> Tensor:
    """The states of several messages `(2P, c, …)`, concatenated into new messages."""
    shape = (*messages[0].shape[:2], sum(some.shape[2] for some in messages))
    return torch.cat(messages, 2, out=_message_memory(messages[0], shape))


def _message_memory(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Memory for messages that is returned to the system as soon as it is freed.

    Messages take most of the memory. When a block larger than `InferenceSettings.kept_when_freed` is freed, it returns
    to the system at once. The allocator keeps smaller blocks, and soon keeps as much unused memory as is in use. So a
    small block is allocated as the first part of a larger one, whose other pages are never touched and take no memory.
    """
    numbers = prod(shape)
    large = like.device.type == "cpu" and numbers > InferenceSettings.block
    whole = max(numbers, InferenceSettings.kept_when_freed // like.element_size() + 1) if large else numbers
    return like.new_empty(whole)[:numbers].view(shape)


def cavities(pool: Pool, messages: Tensor, belief: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """For some pairs at a time, the cavity beliefs: the sender's belief without the message from the receiver.

    Yields blocks of `k` pairs with their cavity beliefs, `(2k, c, states)`: first in one direction, then in the other.
    For pairs with instances of another rank, `(k, c, states)`: the beliefs of this rank's ends.
    """
    edges = pool.edges
    for pairs in edges.parts(messages.shape[1] * messages.shape[2]):
        ways = edges.both_ways(messages, pairs)
        ends = [edges.first[pairs], edges.second[pairs]][: len(ways)]
        believed = belief.index_select(0, torch.cat(ends))
        for sender, received in zip(believed.chunk(len(ways)), reversed(ways), strict=True):
            sender.div_(received)
        yield pairs, believed.div_(believed.sum(1, keepdim=True).clamp_(min=finfo(believed.dtype).tiny))


@dataclass(frozen=True, eq=False)
class Score:
    """The score of states: the Bethe approximation of log Z, term by term.

    Attributes:
        samples: `(n, states)`: the term of each sample.
        pairs: `(P, states)`: the term of each pair, which is subtracted, because the samples count pairs twice. It is 0
            for pairs that count on another rank.
        ranks: the processes that share the pool.
    """

    samples: Tensor
    pairs: Tensor
    ranks: Ranks = ALONE

    @property
    def total(self) -> Tensor:
        """The score of each state, `(states,)`, over all ranks."""
        return self.ranks.total(widened(self.samples).sum(0) + widened(self.pairs).sum(0))


def score(pool: Pool, potential: Potential, messages: Tensor, hidden: Tensor | None = None) -> Score:
    """The Bethe log Z of the states with these converged messages `(2P, c, states)`."""
    field = pool.heard(messages).add_(pool.unary)
    belief = pool.beliefs(field, hidden)
    weights = potential.weights(pool, belief)
    pairs = messages.new_empty(len(pool.edges), messages.shape[2])
    for some, senders in cavities(pool, messages, belief):
        *_, received = pool.edges.both_ways(messages, some)
        sender = senders[: len(received)]
        met = (sender * received).sum(1).clamp(min=finfo(sender.dtype).tiny)
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
        rows: for each of these samples, the labels of its candidates, `(Ω_i, m)`.
    """
    slots, axis = pool.factor.shape[1], {sample: place for place, sample in enumerate(rows)}
    labels = list(rows.values())
    unary = widened(torch.nn.functional.pad(pool.unary[:, :, 0], (1, 0)))  # label -1 adds 0
    excluded = torch.nn.functional.pad(pool.excluded, (1, 0))
    logits = unary.new_zeros([len(row) for row in labels])

    def along(values: Tensor, *axes: int) -> Tensor:
        return values.view([len(row) if place in axes else 1 for place, row in enumerate(labels)])

    for sample, place in axis.items():
        own, column = slice(sample * slots, (sample + 1) * slots), labels[place].T.long() + 1
        out = excluded[own].gather(1, column).any(0)  # contradicts a known label: neighbours cannot outweigh that
        weight = unary[own].gather(1, column).sum(0)
        logits += along(weight if bool(out.all()) else weight.masked_fill(out, -torch.inf), place)
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
