"""Search: many noisy starts as one batch, then generations that combine them, for the labelling that cuts the least.

Belief propagation from a single start gets stuck where samples are few and candidates many. Noise that fades while
the coupling grows finds different states; the parts that good states share are mostly right, so new starting
points begin with them, while instances that disagree with their neighbourhood are open again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from clipper.errors import InputError
from clipper.pruning.joint.crossover import crossed_over
from clipper.pruning.joint.messages import Model, round_of_messages

_FEW = 4
"""Starts of the first try."""
_OFFSPRING = 0.7
"""An offspring's share of the rounds and of the noise: it knows something to begin with."""


@dataclass(frozen=True)
class Plan:
    """How long and how widely to search. The defaults are for pools of a hundred samples or more."""

    starts: int = 64
    """States in a generation."""
    together: int = 64
    """States propagated at once, so that memory stays bounded."""
    trial: int = 40
    """Rounds of a first try from a few starts; where all of them meet, there is nothing to search. 0 for no try."""
    generations: int = 12
    """Generations of offspring, at most."""
    patience: int = 3
    """Generations without a better state before the search ends."""
    witnesses: float = 0.25
    """Share of the first generation, three starts at least, that must meet in the best state to need no offspring."""
    elite: int = 16
    """States that have offspring."""
    rounds: int = 160
    """Rounds of messages."""
    noise: float = 2.0
    """The first round's, in log-odds."""
    inheritance: float = 3.0
    """Log-odds that an untroubled instance inherits from either parent."""
    opened: float = 0.0
    """Every other offspring is the best state with a neighbourhood open again, of this share at most; 0: none is."""
    damping: float = 0.5
    heat: float = 0.5
    """Coupling in the first round, as a share of the last round's."""


@dataclass(frozen=True, eq=False)
class States:
    """Labellings, the one that cuts least first."""

    labels: Tensor
    """`(n*m, states)`"""
    energy: Tensor
    """`(states,)`: the weight of the pairs that are cut."""

    def best(self, count: int, apart: float = 0.02) -> States:
        """The first `count` that differ from all better ones in more than a share of the instances."""
        chosen: list[int] = []
        for state in range(len(self.energy)):
            other = self.labels[:, chosen] != self.labels[:, state : state + 1]
            if not chosen or bool((other.float().mean(0) > apart).all()):
                chosen.append(state)
            if len(chosen) == count:
                break
        return States(self.labels[:, chosen], self.energy[chosen])

    def meeting(self, apart: float = 0.02) -> int:
        """How many states are the best one, up to a share of the instances."""
        return int(((self.labels != self.labels[:, :1]).float().mean(0) <= apart).sum())

    def joined(self, other: States) -> States:
        """Both, in order; the first of equals first."""
        energy, order = torch.cat([self.energy, other.energy]).sort(stable=True)
        return States(torch.cat([self.labels, other.labels], dim=1)[:, order], energy)


def search(model: Model, weight: Tensor, plan: Plan, generator: torch.Generator) -> States:
    """The best states found, all different.

    Args:
        model: the pool.
        weight: by how much each pair favours agreement, `(P,)`.
        plan: how long to search.
        generator: of the noise.
    """
    tried = _tried(model, weight, plan, generator)
    if tried is not None:
        return tried
    first = annealed(model, weight, plan, generator)
    found, waited = first.best(plan.elite), 0
    for _ in range(0 if first.meeting() >= max(3, plan.witnesses * plan.starts) else plan.generations):
        if waited == plan.patience or len(found.energy) == 1:
            break
        offspring = annealed(model, weight, plan, generator, found)
        waited = waited + 1 if float(offspring.energy[0]) >= float(found.energy[0]) - 1e-4 else 0
        found = found.joined(offspring).best(plan.elite)
    return found


def _tried(model: Model, weight: Tensor, plan: Plan, generator: torch.Generator) -> States | None:
    """The state in which a few hurried starts meet, if they all do; the noise of a search to follow stays as it was."""
    starts = min(_FEW, plan.starts)
    if not plan.trial or starts < _FEW:
        return None
    hurried = replace(plan, starts=starts, rounds=plan.trial)
    states = annealed(model, weight, hurried, generator.clone_state())
    return states.best(1) if states.meeting() == starts else None


def annealed(
    model: Model, weight: Tensor, plan: Plan, generator: torch.Generator, parents: States | None = None
) -> States:
    """A generation: from noise alone, or from what pairs of parents hand down."""
    found: States | None = None
    for begin in range(0, plan.starts, plan.together):
        starts = min(plan.together, plan.starts - begin)
        hint = None if parents is None else crossed_over(model, weight, parents, plan, generator, starts)
        states = _cooled(model, weight, plan, generator, starts, hint)
        found = states if found is None else found.joined(states)
    if found is None:
        raise InputError(f"expected at least one start, got {plan.starts}")
    return found


def _cooled(
    model: Model, weight: Tensor, plan: Plan, generator: torch.Generator, starts: int, hint: Tensor | None
) -> States:
    """Run `starts` starts while noise and hint fade and the coupling grows to its full strength."""
    share = 1.0 if hint is None else _OFFSPRING
    rounds, noise = int(plan.rounds * share), plan.noise * share
    fading = rounds * 3 // 4
    shape = model.edges.instances, model.unary.shape[1], starts
    messages = model.zero_messages(starts)
    for step in range(rounds):
        left = max(0.0, 1 - step / fading)
        error = model.error(weight * (1 - left * (1 - plan.heat)))
        push = None
        if left:
            push = torch.randn(shape, generator=generator).to(messages).mul_(noise * left)
            push = push if hint is None else push.add_(hint, alpha=left)
        messages = round_of_messages(model, messages, error, plan.damping, push)
    return ranked(model, weight, model.factor.best(model.field(messages)))


def ranked(model: Model, weight: Tensor, labels: Tensor) -> States:
    """Labellings `(n*m, states)` in order of what they cut."""
    energy, order = model.energy(labels, weight).sort(stable=True)
    return States(labels[:, order], energy)
