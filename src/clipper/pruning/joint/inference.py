"""infer: the whole pool decides together which candidates are probable."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite

import torch
from torch import Tensor

from clipper.arguments import as_tensor, real_number, seed_number, whole_number
from clipper.candidates import CandidateSet
from clipper.candidates.base import check_log_probs, check_satisfiable
from clipper.errors import InputError
from clipper.proximity import ProximityGraph
from clipper.pruning.graphs import check_edges, graph_of
from clipper.pruning.joint.credible_set import averaged
from clipper.pruning.joint.disagreement import enough_pairs, equal_confusion
from clipper.pruning.joint.edges import Edges
from clipper.pruning.joint.factors import Factor
from clipper.pruning.joint.fitting import FittedState, errors, fit_states, verified, with_confusion
from clipper.pruning.joint.label_symmetry import Readings, correct_names, weigh_namings
from clipper.pruning.joint.lattice_factor import factor_of
from clipper.pruning.joint.messages import Model
from clipper.pruning.joint.posterior import Posterior, Verdict
from clipper.pruning.joint.schedule import search_plan, searched_part
from clipper.pruning.joint.search import Plan, States, search
from clipper.pruning.joint.trust import SMALLEST_GIVEN, Trust
from clipper.pruning.objectives import NEIGHBOURS
from clipper.pruning.result import Set

_FINALISTS = 4
_ATTEMPTS = 3
"""Searches at most, where the formulas do not bear out what the first one found."""
_SIGNIFICANT = 3.0
"""Standard errors by which the formulas must bear out the neighbours for the graph to count as informative."""
_EXPLAINED = 1 / 3
"""The share of the formulas' surprise that must be explained; states that got stuck explain 0.1 to 0.3."""
_LEAST_LOG_PROB = -8.0
"""A classifier's certainty counts this much at most, so that the pool can outvote it."""


def infer(
    candidates: Set,
    graph: ProximityGraph,
    *,
    log_probs: Tensor | None = None,
    trust: Trust | float | None = None,
    starts: int | None = None,
    seed: int = 0,
) -> Posterior[Set]:
    """Which candidates are probable if near instances tend to share a label, anywhere in the pool.

    The pool becomes one graphical model: a variable per sample (which candidate) and a soft equality per edge.
    Sum-product belief propagation runs from many noisy starts; the state whose most probable labelling cuts the least
    edge weight wins. No gold label is needed for anything.

    Args:
        candidates: what the labels could be; a lattice may have any number of candidates.
        graph: which instances may share a label, five to ten neighbours each; neither the direction of an edge nor its
            repetition matters. Or embeddings `(n, m, d)`, of which eight neighbours each are taken.
        log_probs: what a classifier says, `(n, m, c)`, as evidence beside the graph. Use a classifier that has not
            learned from these samples, or it repeats what it was told. The formulas decide how far to believe it.
        trust: how often pairs disagree: a `Trust`, or a number for all pairs alike, used as given. Fitted to the pool
            if not given; if it is given, the posterior is the model's own, exact on pools without cycles.
        starts: states in a generation of the search; by the size of the pool if not given.
        seed: of the noise.

    Returns:
        A `Posterior`: the most probable labels, the marginals, and a verdict on whether to believe them.
        `posterior.prune(mass)` prunes to the candidates that hold this share of the probability.

    Raises:
        InputError: graph, log_probs or options do not fit the candidates.

    Examples:
        >>> from clipper import Candidates
        >>> candidates = Candidates.from_rule(sum, targets=[3, 1, 4], slots=2, classes=3)
        >>> graph = ProximityGraph.from_edges([0, 1], [4, 5])
        >>> posterior = infer(candidates, graph, trust=0.1)
        >>> posterior.labels.tolist()[0] in ([1, 2], [2, 1])
        True
        >>> posterior.probability.shape, posterior.marginals.shape
        (torch.Size([5]), torch.Size([3, 2, 3]))
    """
    graph = graph_of(candidates, graph, NEIGHBOURS)
    check_satisfiable(candidates)
    check_edges(candidates, graph, candidates)
    curve, seed = _checked_trust(trust), seed_number(seed)
    starts = None if starts is None else whole_number(starts, "starts")
    model = model_of(candidates, graph, factor_of(candidates), log_probs)
    model = replace(model, size_corrected=True) if curve is None else replace(model, least_error=SMALLEST_GIVEN)
    with torch.no_grad():
        fitted = _best_fit(model, curve, search_plan(model, starts), torch.Generator().manual_seed(seed))
        readings = Readings(fitted.field, fitted.field.new_ones(1))
        if curve is None and _verdict(fitted) != "uninformative":
            fitted, readings = _refined(model, *correct_names(model, fitted))
        return _posterior(candidates, graph, model, fitted, readings)


def model_of(candidates: CandidateSet, graph: ProximityGraph, factor: Factor, log_probs: Tensor | None = None) -> Model:
    """The pool as a graphical model."""
    instances = candidates.samples * candidates.slots
    unary = torch.zeros(instances, candidates.classes, 1, device=candidates.device)
    model = Model(factor, Edges.of(graph, instances), unary, _labels_of_kind(candidates))
    if log_probs is None:
        return model
    values = as_tensor(log_probs, "log_probs", candidates.device).detach()
    check_log_probs(values, candidates)
    values = values.masked_fill(candidates.kind[..., None] < 0, 0)  # whatever unused slots hold
    if bool((values.isnan() | (values == torch.inf)).any()):
        raise InputError("expected log_probs without NaN and infinity, got some; look at the classifier that gave them")
    said = values.to(unary).clamp(min=_LEAST_LOG_PROB).reshape(unary.shape)
    return replace(model, unary=said * verified(model, said).sharpness)


def _labels_of_kind(candidates: CandidateSet) -> Tensor:
    """The labels of each slot's kind, `(n*m, c)` bool; none where the slot is unused."""
    device = candidates.device
    kind = torch.repeat_interleave(
        torch.arange(len(candidates.kinds), device=device),
        torch.tensor([kind.stop - kind.start for kind in candidates.kinds], device=device),
    )  # (c,)
    return kind == candidates.kind.reshape(-1, 1)


def _checked_trust(trust: Trust | float | None) -> Trust | None:
    if trust is None or (isinstance(trust, Trust) and isfinite(trust.level) and isfinite(trust.slope)):
        return trust
    return Trust.constant(real_number(trust, "trust, the share of disagreeing pairs,", least=SMALLEST_GIVEN, below=1))


def _best_fit(model: Model, trust: Trust | None, plan: Plan, generator: torch.Generator) -> FittedState:
    """The best of a few searches; one is enough where the formulas bear it out, or where there is nothing to find."""
    whole = trust or Trust.by_rank(model.edges.length)
    searched, guess = searched_part(model, trust)
    found: States | None = None
    for _ in range(_ATTEMPTS):
        again = search(searched, searched.weight(errors(searched, guess)), plan, generator)
        plan = replace(plan, trial=0)
        found = again if found is None else found.joined(again)
        fitted = fit_states(model, whole, found.best(_FINALISTS).labels, fit=trust is None)
        if _verdict(fitted) != "unsettled":
            break
    return fitted


def _refined(model: Model, fitted: FittedState, readings: Readings) -> tuple[FittedState, Readings]:
    """The same with labels told apart that lie beside one another, where there is reason to believe any of it."""
    if _verdict(fitted) != "joint" or not enough_pairs(len(model.edges), model.unary.shape[1]):
        return fitted, readings
    refined = with_confusion(model, fitted)
    return (refined, weigh_namings(model, refined.field)) if refined.still else (fitted, readings)


def _posterior(
    candidates: Set, graph: ProximityGraph, model: Model, fitted: FittedState, readings: Readings
) -> Posterior[Set]:
    n, m, c = model.factor.shape
    labels = model.factor.best(readings.field[:, :, :1].contiguous())
    cut = float(model.edges.cut(labels, fitted.weight))
    return Posterior(
        candidates,
        graph,
        log_odds=readings.field.view(n, m, c, -1),
        weight=readings.weight,
        labels=labels.view(n, m),
        marginals=averaged(model.factor.marginals, readings.field, readings.weight).view(n, m, c),
        energy=cut / max(float(fitted.weight.sum()), 1e-9),
        trust=fitted.trust,
        confusion=equal_confusion(c).to(model.unary) if fitted.confused is None else fitted.confused,
        verification=fitted.verification,
        verdict=_verdict(fitted),
    )


def _verdict(fitted: FittedState) -> Verdict:
    if fitted.verification.significance < _SIGNIFICANT:
        return "uninformative"
    return "joint" if fitted.still and fitted.verification.explained >= _EXPLAINED else "unsettled"
