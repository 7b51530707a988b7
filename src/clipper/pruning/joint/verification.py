"""Verification: how well the messages of the rest of the pool predict hidden formulas."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, finfo

from clipper.arguments import widened
from clipper.pruning.joint.pool import Pool, one_hot
from clipper.pruning.joint.settings import InferenceSettings


@dataclass(frozen=True, eq=False)
class Verification:
    """How well the neighbours' messages to samples with hidden formulas predict these formulas.

    Attributes:
        sharpness: the factor on the messages' log-odds under which the formulas are most probable.
        wrong: the share of wrong targets under which the formulas are most probable.
        suspicion: `(n,)`: the probability that a sample's target is wrong.
        gain: the gain in log-probability of the formulas over the best class prior, in nats per sample.
        explained: the gain as a share of the surprise under the prior: 1 if every formula is predicted with certainty.
        leak: the odds that an edge joins samples with the same formula, divided by the odds expected by chance.
        misfit: the share of samples that contradict their neighbours' messages, if these samples look alike; else 0.
    """

    sharpness: float
    wrong: float
    suspicion: Tensor
    gain: float
    explained: float
    leak: float = 1.0
    misfit: float = 0.0


def verified(
    pool: Pool, heard: Tensor, prior: Tensor, wrong: float | None, settings: InferenceSettings
) -> Verification:
    """Compare the messages to samples whose formula was hidden with these formulas.

    If the target is right, the probability of a formula is that of independent labels drawn by the messages to the
    sample's slots. If the target is wrong, it is that under the class prior. The sharpness of the messages and the
    share of wrong targets are chosen by maximum likelihood of all formulas.

    Args:
        pool: the pool.
        heard: the log-odds of the messages to each instance, `(n*m, c, 1)`.
        prior: the surprise of each formula under the best class prior, in nats, `(n,)`.
        wrong: the share of wrong targets; None to fit it.
        settings: the constants.
    """
    fields = (pool.tempered(heard, trial, settings.least_error) for trial in settings.sharpness)
    surprise = (
        torch.cat([pool.surprise(field) for field in fields], 1).cpu().double()
    )  # (n, trials): small from here on
    prior, ranks = prior.cpu(), pool.ranks
    ratio = (prior[:, None].double() - surprise).nan_to_num(nan=-torch.inf)  # log-odds of the target
    judges = prior.isfinite()
    samples = ranks.count(int(judges.sum()))
    share = torch.full((surprise.shape[1],), 1 / 2 if wrong is None else wrong, dtype=torch.double)
    while True:
        total = torch.logaddexp(ratio + (-share).log1p(), share.log().expand_as(ratio))  # gain of each sample
        suspicion = (share.log() - total).exp()
        following = ranks.total(suspicion[judges].sum(0)) / (samples + 1) if wrong is None else share
        if float((following - share).abs().max()) <= settings.still:
            break
        share = following
    total = total.masked_fill(~judges[:, None], 0)
    best = int(ranks.total(total.sum(0)).argmax())
    gain = total[judges, best]
    gain = ranks.rows(gain, ranks.all_of(len(gain)))  # of all ranks, a number for each sample
    return Verification(
        sharpness=settings.sharpness[best],
        wrong=float(share[best]),
        suspicion=suspicion[:, best].masked_fill(~judges, 1).to(heard),
        gain=float(gain.mean()) if samples else 0.0,
        explained=float(gain.sum()) / max(float(ranks.total(prior[judges].sum())), finfo(heard.dtype).eps),
    )


def prior_surprise(pool: Pool, fold: Tensor, labels: Tensor, settings: InferenceSettings) -> Tensor:
    """The surprise of each formula under the class prior that fits the formulas of all other folds best, `(n,)`.

    The prior is fitted by expectation-maximisation, for each fold from two starts: the uniform distribution, and the
    frequencies in `labels (n*m, folds)`.
    """
    folds = labels.shape[1]
    hidden = fold[:, None] == torch.arange(folds, device=fold.device)
    if pool.disbelieved is not None:
        hidden = hidden | pool.disbelieved[:, None]
    hidden = hidden.repeat(1, 2)
    weight = (~pool.by_slot(hidden) & pool.possible.any(1)[:, None, None]).to(pool.unary)  # (n*m, 1, 2 * folds)
    smoothing = 1 / pool.classes
    seen = pool.ranks.total(one_hot(labels, pool.classes).sum(0))
    prior = torch.cat([pool.typical.expand(-1, folds), seen], 1) + smoothing
    for _ in range(settings.hurried):
        field = pool.unary + by_kind(prior, pool).log()
        prior = pool.ranks.total((pool.factor.marginals(field.contiguous()) * weight).sum(0)) + smoothing
    surprise = pool.surprise((pool.unary + by_kind(prior, pool).log()).contiguous())  # (n, 2 * folds)
    fits = pool.ranks.total(surprise.masked_fill(hidden | ~surprise.isfinite(), 0).sum(0)).view(2, folds)
    better = surprise.view(-1, 2, folds).gather(1, fits.argmin(0).expand(len(fold), 1, -1))[:, 0]  # (n, folds)
    return better.gather(1, fold[:, None])[:, 0]


def by_kind(many: Tensor, pool: Pool) -> Tensor:
    """`many (c, states)` divided by the total of each label's kind."""
    return many / (pool.same_kind.to(many) @ many)


def formula_leak(pool: Pool, template: Tensor) -> float:
    """The odds that a pair joins samples with the same formula, divided by the odds expected by chance.

    Instances with the same label tend to have similar formulas. So the chance level is that of two instances of
    different samples with the same label, where labels are drawn from the marginals of each sample's formula alone.

    Args:
        pool: the pool.
        template: `(n,)`: equal for samples with the same formula, on all ranks.
    """
    samples, slots, classes = pool.factor.shape
    edges, ranks = pool.edges, pool.ranks
    first, second = edges.first[edges.counted], edges.second[edges.counted]
    across = (first // slots != second // slots) | (second >= edges.instances)
    if slots == 1 or not ranks.any(across):
        return 1.0
    formula = edges.shard.bordered(template.repeat_interleave(slots))
    equal = widened((formula[first] == formula[second])[across])
    marginals = widened(pool.factor.marginals(torch.zeros_like(pool.unary))[:, :, 0].nan_to_num(0))
    by_sample = marginals.view(samples, slots, classes).sum(1)  # (n, c)
    by_formula = by_sample.new_zeros(int(ranks.most(template.max())) + 1, classes)
    by_formula = ranks.total(by_formula.index_add_(0, template, by_sample))
    within = ranks.total(by_sample.square().sum())  # pairs that one sample makes with itself do not count
    all_pairs = ranks.total(by_sample.sum(0)).square().sum() - within
    chance = (by_formula.square().sum() - within) / all_pairs.clamp(min=finfo(all_pairs.dtype).tiny)
    # One additional pair of each sort, so that the ratio is not extreme if there are few pairs.
    share = (ranks.total(equal.sum()) + chance) / (ranks.count(len(equal)) + 1)
    odds = [
        p / (1 - p)
        for p in (float(p.clamp(finfo(torch.float).eps, 1 - finfo(torch.float).eps)) for p in (share, chance))
    ]
    return odds[0] / odds[1]


def misfit_of(pool: Pool, heard: Tensor, prior: Tensor, sharpness: float, settings: InferenceSettings) -> float:
    """The share of samples that contradict their neighbours' messages, if these samples look alike; else 0.

    A sample contradicts the messages if its target is probably wrong, judged as if half of all targets were. Targets
    that are wrong by chance have nothing in common. But if a class is missing from the labels, its instances are near
    each other, and their samples contradict the messages.

    Args:
        pool: the pool.
        heard: the log-odds of the messages to each instance, without the formula of its sample, `(n*m, c, 1)`.
        prior: the surprise of each formula under the best class prior, in nats, `(n,)`.
        sharpness: the factor on the messages.
        settings: the constants.
    """
    field = pool.tempered(heard, sharpness, settings.least_error)
    contradiction = (widened(pool.surprise(field)[:, 0]) - widened(prior)).sigmoid().nan_to_num(0)  # (n,)
    judges = prior.isfinite()
    labels = pool.best(field).masked_fill(~pool.by_slot(judges[:, None])[:, 0], -1)
    correlation, error = correlation_along_edges(pool, contradiction, labels)
    if correlation <= max(settings.alike, settings.certain * error):
        return 0.0
    many = pool.ranks.total(((contradiction > 1 / 2) & judges).sum())
    return float(many / pool.ranks.total(judges.sum()))


def correlation_along_edges(pool: Pool, values: Tensor, labels: Tensor) -> tuple[float, float]:
    """The correlation, along the edges, of the values of the two samples that an edge joins, and its standard error.

    From the value at each instance, the mean over all instances with the same label is subtracted first, because
    samples with some labels have larger values than others.

    Args:
        pool: the pool.
        values: a value for each sample, `(n,)`.
        labels: of the instances, `(n*m, 1)`; those with -1 do not count.

    Returns:
        The correlation, and its standard error in a pool in which values belong to samples at random.
    """
    slots, edges, ranks = pool.factor.shape[1], pool.edges, pool.ranks
    counts = one_hot(labels, pool.classes)[:, :, 0].to(values)  # (n*m, c)
    spread = values.repeat_interleave(slots)
    mean = ranks.total(counts.T @ spread) / ranks.total(counts.sum(0)).clamp(min=1)
    rest = counts.sum(1) * (spread - counts @ mean)
    variance = ranks.total(rest.square().sum()) / ranks.total(counts.sum()).clamp(min=1)
    first, second = edges.first[edges.counted], edges.second[edges.counted]
    pair = edges.shard.known_as(first) // slots * pool.samples + edges.shard.known_as(second) // slots
    across = pair // pool.samples != pair % pool.samples
    _, repeated = torch.unique(pair[across], return_counts=True)
    together = (rest[first] * edges.shard.bordered(rest)[second])[across]
    count, error = ranks.total(across.sum()), widened(ranks.total(repeated.square().sum())).sqrt()
    if not float(count) or not float(variance):
        return 0.0, 0.0
    return float(ranks.total(together.sum()) / variance / count), float(error / count)
