"""The parts of joint inference: messages against brute force, trust, search, and what the mass keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clipper import Candidates, ProximityGraph, infer
from clipper.pruning.joint.credible_set import smallest_credible_set
from clipper.pruning.joint.crossover import crossed_over, disagreeing_share, neighbourhoods
from clipper.pruning.joint.disagreement import confusion, disagreements, equal_confusion
from clipper.pruning.joint.edges import Edges
from clipper.pruning.joint.factors import CandidateFactor, Factor
from clipper.pruning.joint.inference import model_of
from clipper.pruning.joint.lattice_factor import factor_of
from clipper.pruning.joint.messages import Model, cavity_beliefs, round_of_messages
from clipper.pruning.joint.schedule import search_plan, searched_part
from clipper.pruning.joint.search import Plan, States, search
from clipper.pruning.joint.trust import Trust
from tests.pruning.pools import brute_force_marginals, clustered, shuffled


def propagated(model: Model, error: float, rounds: int) -> torch.Tensor:
    messages = model.zero_messages(1)
    errors = torch.full((len(model.edges),), error)
    for _ in range(rounds):
        messages = round_of_messages(model, messages, errors, damping=0.0)
    return messages


@st.composite
def trees(draw: st.DrawFn) -> tuple[Candidates, ProximityGraph]:
    """A forest of samples: each is tied to at most one earlier sample."""
    row = st.lists(st.integers(0, 2), min_size=2, max_size=2).map(tuple)
    samples = draw(st.lists(st.lists(row, min_size=1, max_size=4), min_size=2, max_size=4))
    source, target = [], []
    for i in range(1, len(samples)):
        if draw(st.booleans()):
            source.append(2 * i + draw(st.integers(0, 1)))
            target.append(2 * draw(st.integers(0, i - 1)) + draw(st.integers(0, 1)))
    return Candidates.from_lists(samples, classes=3), ProximityGraph.from_edges(source, target)


@settings(max_examples=50)
@given(trees(), st.sampled_from([0.05, 0.2, 0.6]))
def test_on_trees_messages_give_the_marginals_of_the_joint_distribution(
    tree: tuple[Candidates, ProximityGraph], error: float
) -> None:
    candidates, graph = tree
    model = model_of(candidates, graph, CandidateFactor(candidates))
    marginals = model.factor.marginals(model.field(propagated(model, error, rounds=8)))
    expected = brute_force_marginals(candidates, graph, error)
    assert torch.allclose(marginals[:, :, 0].double(), expected.flatten(0, 1), atol=1e-4)


@settings(max_examples=50)
@given(trees(), st.lists(st.floats(0.05, 5), min_size=3, max_size=3))
def test_on_trees_messages_know_which_labels_are_confused(
    tree: tuple[Candidates, ProximityGraph], times: list[float]
) -> None:
    candidates, graph = tree
    confused = torch.zeros(3, 3)
    confused[[0, 0, 1], [1, 2, 2]] = torch.tensor(times)
    confused += confused.T.clone()
    model = replace(model_of(candidates, graph, CandidateFactor(candidates)), confused=confused)
    marginals = model.factor.marginals(model.field(propagated(model, 0.3, rounds=8)))
    expected = brute_force_marginals(candidates, graph, 0.3, confused)
    assert torch.allclose(marginals[:, :, 0].double(), expected.flatten(0, 1), atol=1e-4)


@pytest.mark.slow
@settings(max_examples=15)
@given(trees(), st.sampled_from([0.05, 0.2, 0.6]))
def test_on_trees_a_posterior_of_given_trust_is_exact(tree: tuple[Candidates, ProximityGraph], error: float) -> None:
    candidates, graph = tree
    posterior = infer(candidates, graph, trust=error, starts=2)
    assert torch.allclose(posterior.marginals.double(), brute_force_marginals(candidates, graph, error), atol=2e-3)


def test_a_factor_names_the_best_candidate_and_weighs_all() -> None:
    candidates = Candidates.from_lists([[(0, 2), (1, 1)], [(2,)]], classes=3)
    factor = CandidateFactor(candidates)
    field = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0))
    first, second = field[0, 0] + field[1, 2], field[0, 1] + field[1, 1]
    assert torch.allclose(factor.evidence(field)[0], torch.logaddexp(first, second))
    assert torch.equal(factor.best(field)[0], (second > first).long())
    assert factor.best(field)[2:].tolist() == [[2] * 5, [-1] * 5]


def test_edges_are_counted_once_and_measured_by_their_neighbourhoods() -> None:
    graph = ProximityGraph.from_edges([0, 2, 0, 4, 4], [2, 0, 4, 2, 4], torch.tensor([1.0, 1.0, 3.0, 2.0, 0.0]))
    edges = Edges.of(graph, instances=6)
    assert list(zip(edges.first.tolist(), edges.second.tolist(), strict=True)) == [(0, 2), (0, 4), (2, 4)]
    assert edges.rank.tolist() == [0, 1, 0]
    assert torch.allclose(edges.length[0], torch.tensor(1 / 2**0.5))  # around 0 two is typical, around 2 one
    labels = torch.tensor([[0, 1], [9, 9], [0, 2], [9, 9], [1, 1], [9, 9]])
    assert edges.cut(labels, torch.tensor([1.0, 10.0, 100.0])).tolist() == [110.0, 101.0]


@pytest.mark.parametrize("factor", [CandidateFactor, factor_of])
def test_the_search_goes_along_all_pairs_only_where_candidates_outnumber_messages(
    factor: Callable[[Candidates], Factor],
) -> None:
    graph = ProximityGraph.from_embeddings(torch.rand(6, 4, 4, generator=torch.Generator().manual_seed(0)), k=6)
    for rule, all_pairs in ((sum, False), (max, True)):  # 56 and 671 candidates a sample
        candidates = Candidates.from_rule(rule, [5] * 6, 4, 6)
        model = model_of(candidates, graph, factor(candidates))
        part, trust = searched_part(model, None)
        assert (len(part.edges) == len(model.edges)) == all_pairs
        assert float(trust.error(part.edges.length).max()) <= 0.6
        assert (search_plan(model, None).starts, search_plan(model, None).patience) == (64, 3)
        assert search_plan(model, 20).patience == 5  # fewer offspring a generation, more generations
        assert (search_plan(model, None).opened > 0) == all_pairs


def test_offspring_of_the_best_state_forgets_a_neighbourhood_and_nothing_else() -> None:
    candidates, embeddings, gold = clustered(samples=60)
    model = model_of(candidates, ProximityGraph.from_embeddings(embeddings, k=5), CandidateFactor(candidates))
    weight = torch.ones(len(model.edges))
    parents = States(torch.stack([gold.flatten(), gold.flatten().roll(1)], dim=1), torch.tensor([0.0, 1.0]))
    plan = Plan(opened=0.2)
    hint = crossed_over(model, weight, parents, plan, torch.Generator().manual_seed(0), starts=6)
    remembered = hint.amax(1) > 0  # (n*m, starts)
    calm = disagreeing_share(model.edges, weight, gold.flatten()[:, None])[:, 0] < 1
    forgotten = (calm[:, None] & ~remembered).float().mean(0)[::2]
    assert bool((forgotten > 0).all())
    assert bool((forgotten <= plan.opened).all())
    told = hint[:, :, ::2].argmax(1) == gold.flatten()[:, None]
    assert bool(told[remembered[:, ::2]].all()), "the best state's labels"


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_neighbourhoods_are_what_breadth_first_search_reaches(share: float) -> None:
    generator = torch.Generator().manual_seed(1)
    ends = torch.randint(0, 30, (2, 45), generator=generator)
    edges = Edges.of(ProximityGraph.from_edges(*ends), instances=30)
    near = {i: {i} for i in range(30)}
    for a, b in zip(edges.first.tolist(), edges.second.tolist(), strict=True):
        near[a].add(b)
        near[b].add(a)
    found = neighbourhoods(edges, torch.arange(30), share)
    for centre in range(30):
        expected = {centre}
        while (more := set().union(*(near[i] for i in expected))) != expected and len(more) <= share * 30:
            expected = more
        assert set(found[:, centre].nonzero()[:, 0].tolist()) == expected


def test_fitting_recovers_the_errors_of_pairs_whose_labels_are_known() -> None:
    generator = torch.Generator().manual_seed(0)
    length = 0.5 + torch.rand(5000, generator=generator)
    differ = (torch.rand(5000, generator=generator) < torch.sigmoid(-1.5 + 3 * (length - 1))).float()
    trust = Trust.fitted(length, differ)
    assert abs(trust.level + 1.5) < 0.15
    assert abs(trust.slope - 3) < 0.4


def test_expectation_and_maximisation_recover_a_known_error_and_which_labels_are_confused() -> None:
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(0, 10, (4000,), generator=generator)
    differ = torch.rand(4000, generator=generator) < 0.3
    twin = torch.rand(4000, generator=generator) < 0.5  # every other one that differs is the label's twin: 0 and 1, …
    anyone = (labels + torch.randint(1, 10, (4000,), generator=generator)) % 10
    other = torch.where(differ, torch.where(twin, labels ^ 1, anyone), labels)
    # Each end is believed to be one of two labels, four to one, and that is how often the belief is right.
    believed = torch.full((8000, 10), 1e-6)
    ends = torch.cat([labels, other])
    wrong = (ends + torch.randint(1, 10, (8000,), generator=generator)) % 10
    right = 0.2 + 0.6 * (torch.rand(8000, generator=generator) < 0.8)
    believed[torch.arange(8000), ends] += right
    believed[torch.arange(8000), wrong] += 1 - right
    trust, length, others = Trust.constant(0.05), torch.ones(4000), torch.full((4000,), 9.0)
    confused, same_kind = equal_confusion(10), torch.ones(10, 10).bool()
    for _ in range(30):
        differs, met = disagreements(believed, trust.error(length), others, torch.ones(10), confused)
        trust, confused = Trust.fitted(length, differs), confusion(met, torch.ones(10), same_kind)
    assert abs(float(trust.error(torch.ones(1))) - 0.3) < 0.05
    assert torch.equal(confused.argmax(1), torch.arange(10) ^ 1)
    assert abs(float(confused[0, 1]) - 0.5 * 9 - 0.5) < 1  # half of them, of nine; and its share of the other half


@given(st.integers(0, 10**6), st.booleans())
def test_pairs_disagree_as_often_as_all_pairs_of_labels_say(seed: int, known: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    believed = torch.rand(10, 4, generator=generator).softmax(1)
    error, others, worth = torch.rand(5, generator=generator), torch.full((5,), 3.0), torch.rand(4, generator=generator)
    half = torch.rand(4, 4, generator=generator)
    confused = (half + half.T) * equal_confusion(4) if known else None
    times = equal_confusion(4) if confused is None else confused
    table = times * (error / others)[:, None, None] + torch.diag(worth) * (1 - error)[:, None, None]  # (P, c, c)
    joint = table * believed[:5, :, None] * believed[5:, None, :]
    joint /= joint.sum((1, 2), keepdim=True)
    differs, met = disagreements(believed, error, others, worth, confused)
    apart = joint * equal_confusion(4)
    assert torch.allclose(differs, apart.sum((1, 2)), atol=1e-5)
    assert torch.allclose(met, (apart + apart.mT).sum(0), atol=1e-5)


def test_labels_of_two_kinds_are_never_confused_and_each_kind_is_judged_by_itself() -> None:
    same_kind = torch.block_diag(torch.ones(3, 3), torch.ones(2, 2), torch.ones(1, 1)).bool()
    met = torch.zeros(6, 6)
    met[0, 1] = met[1, 0] = 50.0
    times = confusion(met, torch.arange(1.0, 7.0), same_kind)
    assert torch.equal(times, times.T)
    assert times[~same_kind].eq(1).all()
    assert times.diagonal().eq(0).all()
    assert times[0, 1] > 2 > 1 > times[0, 2] == times[1, 2] > 0
    assert times[3, 4] == 1  # nothing is known of the second kind


def test_trust_never_grows_with_distance() -> None:
    length = torch.linspace(0.5, 1.5, 100)
    assert Trust.fitted(length, 1 - length / 2).slope == 0
    assert Trust.by_rank(length).slope > 0
    assert Trust.by_rank(torch.empty(0)).slope == 0


def test_the_fewest_candidates_hold_the_mass() -> None:
    candidates = Candidates.from_lists([[(0,), (1,), (2,), (3,)], [(0,), (1,)]], classes=4)
    probability = torch.tensor([0.1, 0.5, 0.3, 0.1, 1.0, 0.0])
    assert smallest_credible_set(candidates, probability, 0.8).tolist() == [False, True, True, False, True, False]
    assert smallest_credible_set(candidates, probability, 0.81).tolist() == [True, True, True, True, True, False], (
        "equals stay"
    )
    assert smallest_credible_set(candidates, probability, 1e-6).tolist() == [False, True, False, False, True, False]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.sampled_from([0.3, 0.8, 0.95]), st.randoms())
def test_what_is_kept_holds_the_mass_whatever_the_order(counts: list[int], mass: float, random: Random) -> None:
    candidates = Candidates.from_lists([[(i,) for i in range(len(counts))]], classes=8)
    probability = torch.tensor(counts) / sum(counts)
    kept = smallest_credible_set(candidates, probability, mass)
    assert float(probability[kept].sum()) >= mass - 1e-6
    lowest = probability[kept].min()
    assert float(probability[probability > lowest * 1.01].sum()) < mass, "those above the last do not"
    order = list(range(len(counts)))
    random.shuffle(order)
    assert torch.equal(smallest_credible_set(candidates, probability[order], mass), kept[order])


def test_states_come_in_order_and_different() -> None:
    labels = torch.tensor([[0, 0, 1], [0, 0, 1], [0, 1, 1]])
    states = States(labels, torch.tensor([1.0, 1.0, 2.0]))
    assert states.best(5, apart=0.4).labels.tolist() == [[0, 1], [0, 1], [0, 1]]
    assert states.meeting(apart=0.4) == 2


def test_a_search_finds_what_cuts_no_more_than_the_truth() -> None:
    candidates, embeddings, gold = clustered(30, slots=2, classes=5, spread=0.1)
    model = model_of(candidates, ProximityGraph.from_embeddings(embeddings, k=3), CandidateFactor(candidates))
    weight = torch.ones(len(model.edges))
    found = search(model, weight, Plan(starts=16, together=5, rounds=40, trial=0), torch.Generator().manual_seed(0))
    truth = model.energy(gold.view(-1, 1), weight)
    assert float(found.energy[0]) <= float(truth)
    assert bool((found.energy.diff() >= 0).all())


def searched(embeddings: torch.Tensor, candidates: Candidates, trial: int) -> States:
    model = model_of(candidates, ProximityGraph.from_embeddings(embeddings, k=3), CandidateFactor(candidates))
    plan = Plan(starts=8, together=8, rounds=40, trial=trial, generations=0)
    return search(model, torch.ones(len(model.edges)), plan, torch.Generator().manual_seed(0))


def test_where_hurried_starts_meet_the_search_ends_in_the_same_state() -> None:
    candidates, embeddings, _ = clustered(60, slots=2, classes=4, spread=0.02)
    hurried, patient = (searched(embeddings, candidates, trial) for trial in (20, 0))
    assert len(hurried.energy) == 1
    assert torch.equal(hurried.labels[:, 0], patient.labels[:, 0])


def test_where_they_do_not_meet_the_search_goes_on_as_without_them() -> None:
    candidates, embeddings, _ = clustered(60, slots=2, classes=4)
    hurried, patient = (searched(shuffled(embeddings), candidates, trial) for trial in (20, 0))
    assert len(hurried.energy) > 1
    assert torch.equal(hurried.labels, patient.labels)


def test_what_a_receiver_said_is_not_sent_back_to_it() -> None:
    candidates = Candidates.from_lists([[(0,), (1,)], [(0,)]], classes=2)
    model = model_of(candidates, ProximityGraph.from_edges([0], [1]), CandidateFactor(candidates))
    messages = propagated(model, 0.1, rounds=3)
    believed = cavity_beliefs(model, messages, model.factor.marginals(model.field(messages)))
    assert torch.allclose(believed[0, :, 0], torch.tensor([0.5, 0.5]), atol=1e-5)
