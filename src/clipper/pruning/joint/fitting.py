"""Fitting: from the labellings that a search found to one posterior, with trust fitted and confidence set right."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from clipper.pruning.joint.disagreement import confusion, disagreements
from clipper.pruning.joint.edges import one_hot
from clipper.pruning.joint.messages import Model, cavity_beliefs, round_of_messages
from clipper.pruning.joint.trust import Trust

_ROUNDS = 60
_FADING = 30
_HINT = 4.0
"""Log-odds of the label that a finalist begins with."""
_FITS = 8
"""Times that trust is fitted anew, and confusion."""
_LAST = 400
"""Rounds at most until the messages stand still."""
_STILL = 1e-3
"""The largest change of a message that counts as none."""
_STRAGGLERS = 1e-3
"""The share of the messages that may still move in a pool at rest."""
_SPREAD = 0.1
"""Nats: the least that gains are taken to vary from sample to sample, or equal ones would make any gain certain."""
_TRIALS = 4
_SHARPNESS = (0.0, *torch.logspace(-1.3, 0.3, 33).tolist())


@dataclass(frozen=True, eq=False)
class FittedState:
    """The state that won."""

    field: Tensor
    """`(n*m, c, 1)`: what each instance knows and hears, in log-odds, as sharp as it should be."""
    messages: Tensor
    """`(2P, c, 1)`"""
    weight: Tensor
    """`(P,)`: by how much each pair favours agreement."""
    trust: Trust
    confused: Tensor | None
    """`(c, c)`: how many times likelier than by chance two labels meet in a pair that disagrees; None: all alike."""
    verification: Verification
    still: bool
    """Whether the messages came to rest."""


@dataclass(frozen=True)
class Verification:
    """How well the formulas bear out what was heard about their samples."""

    sharpness: float
    """The factor on what was heard under which the formulas are most probable."""
    gain: float
    """How much more probable they are than by chance: nats a sample."""
    explained: float
    """The same as a share of what there is to explain: 1 if every formula was foreseen with certainty."""
    significance: float
    """The gain in standard errors; nothing to speak of below 3."""


def fit_states(model: Model, trust: Trust, finalists: Tensor, fit: bool = True) -> FittedState:
    """Let the finalists `(n*m, states)` compete on all pairs; fit trust to the winner, then its confidence.

    Args:
        model: the pool.
        trust: to begin with.
        finalists: labellings to begin from.
        fit: whether trust may be changed, and confidence with it.
    """
    messages = _from_labels(model, trust, finalists)
    weight = model.weight(errors(model, trust))
    energy = model.energy(model.factor.best(model.field(messages)), weight)
    messages = messages[:, :, int(energy.argmin())].unsqueeze(2).contiguous()
    for _ in range(_FITS if fit else 0):
        _, trust = _refitted(model, trust, messages)
        messages, _ = _continued(model, trust, messages, 20)
    return _at_rest(model, trust, messages, fit)


def with_confusion(model: Model, fitted: FittedState) -> FittedState:
    """Go on from there, and learn which labels lie beside one another.

    With this many free parameters the fit also follows pure noise: so the formulas decide before whether to believe the
    pool at all, and that decision stands.
    """
    trust, messages = fitted.trust, fitted.messages
    for _ in range(_FITS):
        confused, trust = _refitted(model, trust, messages)
        model = replace(model, confused=confused)
        messages, _ = _continued(model, trust, messages, 20)
    told = _at_rest(model, trust, messages)
    return replace(told, verification=replace(fitted.verification, sharpness=told.verification.sharpness))


def _at_rest(model: Model, trust: Trust, messages: Tensor, fit: bool = True) -> FittedState:
    messages, still = _continued(model, trust, messages, _LAST)
    heard = model.field(messages) - model.unary
    verification = verified(model, heard)
    sharpness = verification.sharpness if fit else 1.0  # who says how far to trust is taken at their word
    field, weight = model.unary + heard * sharpness, model.weight(errors(model, trust))
    return FittedState(field, messages, weight, trust, model.confused, verification, still)


def errors(model: Model, trust: Trust) -> Tensor:
    """The probability that each pair disagrees, `(P,)`, kept between near certainty and chance."""
    chance = model.others / (model.others + 1)
    return torch.minimum(trust.error(model.edges.length).clamp(min=model.least_error), chance)


def verified(model: Model, heard: Tensor) -> Verification:
    """Hold what was heard, `(n*m, c, 1)`, beside what was known beforehand, against the samples' own formulas.

    Each neighbour's message leaves out this sample's formula (true on trees only): so the formula can judge the
    messages, and say how sure of themselves they should be. Pairs that share neighbours repeat one another, so that
    propagated beliefs are too sure by far.
    """
    trials = torch.tensor(_SHARPNESS).to(heard)
    parts = torch.split(trials, _TRIALS)  # so that memory stays bounded
    log_odds = torch.cat([_log_odds(model, model.unary + heard * part) for part in parts], dim=1)  # (n, trials)
    best = int(log_odds.sum(0).argmax())
    samples = len(log_odds)
    nothing = _log_odds(model, torch.zeros_like(heard))[:, 0]
    gain = (log_odds[:, best] - nothing).double()
    # Two samples easily bear each other out, and one has no spread: neither is evidence.
    spread = max(float(gain.std()), _SPREAD) if samples > 2 else torch.inf
    return Verification(
        sharpness=_SHARPNESS[best],
        gain=float(gain.mean()),
        explained=float(gain.sum()) / max(-float(nothing.double().sum()), 1e-9),
        significance=float(gain.mean()) * samples**0.5 / spread,
    )


def _log_odds(model: Model, field: Tensor) -> Tensor:
    """How probable each sample's formula is if its slots were labelled independently by the field, `(n, trials)`."""
    chance = field.masked_fill(~model.possible[:, :, None], -torch.inf).logsumexp(1)
    chance = chance.masked_fill(~model.possible.any(1)[:, None], 0)  # an unused slot has no part in it
    samples, slots, _ = model.factor.shape
    return model.factor.evidence(field) - chance.view(samples, slots, -1).sum(1)


def _from_labels(model: Model, trust: Trust, labels: Tensor) -> Tensor:
    error = errors(model, trust)
    hint = one_hot(labels, model.unary.shape[1]).mul_(_HINT)
    messages = model.zero_messages(labels.shape[1])
    for step in range(_ROUNDS):
        left = max(0.0, 1 - step / _FADING)
        messages = round_of_messages(model, messages, error, 0.5, hint * left if left else None)
    return messages


def _continued(model: Model, trust: Trust, messages: Tensor, rounds: int) -> tuple[Tensor, bool]:
    """More rounds, until nothing moves; whether that happened."""
    error = errors(model, trust)
    for step in range(rounds):
        # Heavier damping calms what oscillates.
        following = round_of_messages(model, messages, error, 0.5 if step < rounds // 2 else 0.8)
        moving = ((following - messages).abs() > _STILL).float().mean() if len(following) else 0.0
        messages = following
        if float(moving) <= _STRAGGLERS:
            return messages, True
    return messages, False


def _refitted(model: Model, trust: Trust, messages: Tensor) -> tuple[Tensor, Trust]:
    """On which labels pairs disagree, `(c, c)`, and how often, by what the messages `(2P, c, 1)` make of them."""
    belief = model.factor.marginals(model.field(messages))
    believed = cavity_beliefs(model, messages, belief)[:, :, 0]
    worth = model.rarity(belief)[:, 0]
    differs, met = disagreements(believed, errors(model, trust), model.others, worth, model.confused)
    return confusion(met, belief.sum((0, 2)) + 1, model.same_kind), Trust.fitted(model.edges.length, differs)
