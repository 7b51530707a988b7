"""The parts of joint inference: pairs, ψ, messages, search, and what the mass keeps."""

from __future__ import annotations

import ast
from dataclasses import fields, replace
from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import clipper.pruning.factors
import clipper.pruning.joint
from clipper import Candidates, ProximityGraph
from clipper.pruning.factors import CandidateFactor
from clipper.pruning.joint import InferenceSettings
from clipper.pruning.joint.pool import Pool
from clipper.pruning.joint.posterior import smallest_credible_set
from clipper.pruning.joint.potential import Potential, Trust, confusion, equal_confusion
from clipper.pruning.joint.propagate import Schedule, Score, cavities, propagate, zero_messages
from clipper.pruning.joint.search import Found, States, islands, region_weights, search
from clipper.pruning.pairs import Edges, disagreeing_share
from tests.pruning.pools import clustered, model_of, shuffled


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
    assert edges.differs(labels).tolist() == [[False, True], [True, False], [True, True]]


def test_ranks_do_not_count_an_edge_twice() -> None:
    graph = ProximityGraph.from_edges([0, 0, 1, 2], [1, 2, 2, 0], torch.tensor([1.0, 2.0, 3.0, 2.0]))
    again = ProximityGraph.from_edges(graph.source.repeat(3), graph.target.repeat(3), graph.distance.repeat(3))
    for of_graph in (graph, again):
        edges = Edges.of(of_graph, instances=3)
        assert list(zip(edges.first.tolist(), edges.second.tolist(), edges.rank.tolist(), strict=True)) == [
            (0, 1, 0), (0, 2, 0), (1, 2, 0),
        ]  # fmt: skip
    longer = ProximityGraph.from_edges([0, 0, 0], [1, 1, 2], torch.tensor([1.0, 1.0, 2.0]))
    assert Edges.of(longer, instances=3).rank.tolist() == [0, 1]


@pytest.mark.parametrize("seed", range(5))
def test_components_are_what_breadth_first_search_reaches(seed: int) -> None:
    random = Random(seed)
    pairs = [(random.randrange(40), random.randrange(40)) for _ in range(14)]
    edges = Edges.of(ProximityGraph.from_edges(*zip(*pairs, strict=True)), instances=40)  # 20 samples of two slots
    among = torch.tensor([random.random() < 0.7 for _ in range(20)])
    for chosen in (None, among):
        near = {i: {i} for i in range(20)}
        for a, b in ((a // 2, b // 2) for a, b in pairs):
            if chosen is None or (chosen[a] and chosen[b]):
                near[a].add(b)
                near[b].add(a)
        for i, name in enumerate(edges.components(2, chosen).tolist()):
            reached = {i}
            while (more := set().union(*(near[j] for j in reached))) != reached:
                reached = more
            assert name == min(reached)


@pytest.mark.parametrize("seed", range(5))
def test_islands_are_the_connected_parts_of_a_label_but_for_its_largest(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    ends = torch.randint(0, 30, (2, 45), generator=generator)
    labels = torch.randint(-1, 3, (30,), generator=generator)
    edges = Edges.of(ProximityGraph.from_edges(*ends), instances=30)
    near = {i: {i} for i in range(30)}
    for a, b in zip(edges.first.tolist(), edges.second.tolist(), strict=True):
        if labels[a] == labels[b]:
            near[a].add(b)
            near[b].add(a)
    parts = []
    for i in range(30):
        reached = {i}
        while (more := set().union(*(near[j] for j in reached))) != reached:
            reached = more
        parts.append(reached)
    for i, island in enumerate(islands(edges, labels).tolist()):
        largest = max(len(part) for part, label in zip(parts, labels, strict=True) if label == labels[i])
        assert island == (-1 if labels[i] < 0 or len(parts[i]) == largest else min(parts[i]))


def test_the_share_of_pairs_that_disagree_is_counted_instance_by_instance() -> None:
    edges = Edges.of(ProximityGraph.from_edges([0, 0, 1], [1, 2, 2]), instances=4)
    labels = torch.tensor([[0, 5], [0, 5], [1, 5], [1, 4]])
    assert disagreeing_share(edges, labels).T.tolist() == [[0.5, 0.5, 1, 0], [0, 0, 0, 0]]


def random_potential(pool: Pool, generator: torch.Generator, known: bool, rarest: float) -> Potential:
    half = torch.rand(pool.classes, pool.classes, generator=generator)
    like = (half + half.T) * equal_confusion(pool.classes) if known else None
    return Potential(Trust(-1.0, 2.0), 0.01, rarest, like)


def pool_with_beliefs(seed: int) -> tuple[Pool, torch.Tensor, torch.Tensor, torch.Generator]:
    """A pool, what senders believe `(2P, c)`, what instances are believed to be `(n*m, c)`."""
    generator = torch.Generator().manual_seed(seed)
    graph = ProximityGraph.from_embeddings(torch.rand(5, 2, 3, generator=generator), k=2)
    pool = model_of(Candidates.from_rule(sum, [3] * 5, 2, 4), graph)
    senders = (3 * torch.rand(2 * len(pool.edges), 4, generator=generator)).softmax(1)
    return pool, senders, (3 * torch.rand(10, 4, generator=generator)).softmax(1), generator


@given(st.integers(0, 10**6), st.booleans(), st.sampled_from([1.0, 1.3, 4.0]))
def test_messages_are_sums_over_the_written_out_potential(seed: int, known: bool, rarest: float) -> None:
    pool, senders, belief, generator = pool_with_beliefs(seed)
    potential = random_potential(pool, generator, known, rarest)
    many = belief.sum(0)
    for pair, table in enumerate(potential.tables(pool, torch.arange(len(pool.edges)), belief[:, :, None])):
        error = float(torch.sigmoid(-1 + 2 * (pool.edges.length[pair] - 1)).clamp(0.01, 0.75))
        for y in range(4):
            for z in range(4):
                worth = min(max((10 / 4 + 1) / (float(many[y]) + 1), 1 / rarest), rarest)
                q = 1.0 if potential.confusion is None else float(potential.confusion[y, z])
                assert float(table[y, z]) == pytest.approx((1 - error) * worth if y == z else error / 3 * q, abs=1e-5)
        for message in (pair, pair + len(pool.edges)):
            weights = potential.weights(pool, belief[:, :, None])
            sent = weights.messages(senders.clone()[:, :, None], slice(0, len(pool.edges)))[message, :, 0]
            torch.testing.assert_close(sent, senders[message] @ table)


def whole(senders: torch.Tensor) -> list[tuple[slice, torch.Tensor]]:
    """What senders believe, `(2P, c)`, in a single block."""
    return [(slice(0, len(senders) // 2), senders[:, :, None])]


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.booleans())
def test_a_step_of_fitting_counts_disagreements_over_all_pairs_of_labels(seed: int, known: bool) -> None:
    pool, senders, belief, generator = pool_with_beliefs(seed)
    potential = random_potential(pool, generator, known, 4.0)
    table = potential.tables(pool, torch.arange(len(pool.edges)), belief[:, :, None])
    one, other = senders.chunk(2)
    joint = table * one[:, :, None] * other[:, None, :]
    apart = joint / joint.sum((1, 2), keepdim=True) * equal_confusion(4)  # (P, c, c)
    fitted = potential.refitted(pool, whole(senders), belief, prior_pairs=1.0)
    expected = Trust.fitted(pool.edges.length, apart.sum((1, 2)))
    assert (fitted.trust.level, fitted.trust.slope) == pytest.approx((expected.level, expected.slope), abs=1e-4)
    met = (apart + apart.mT).sum(0)
    torch.testing.assert_close(
        fitted.confusion, confusion(met, belief.sum(0) + 1, torch.ones(4, 4).bool(), 1.0), rtol=1e-4, atol=1e-4
    )
    unfitted = potential.refitted(pool, whole(senders), belief, prior_pairs=torch.inf)
    assert unfitted.confusion is potential.confusion, "too few pairs to say anything of labels"


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
    pairs = ProximityGraph.from_edges(torch.arange(4000), torch.arange(4000, 8000), torch.ones(4000))
    every = [[(label,) for label in range(10)]]
    pool = model_of(Candidates.from_lists(every * 8000, classes=10), pairs)
    potential = Potential(Trust.constant(0.05), 0.01, 1.0)
    for _ in range(30):
        potential = potential.refitted(pool, whole(believed), torch.full((8000, 10), 0.1), prior_pairs=3.0)
    assert abs(float(potential.trust.error(torch.ones(1))) - 0.3) < 0.05
    found = potential.confusion
    assert found is not None
    assert torch.equal(found.argmax(1), torch.arange(10) ^ 1)
    assert abs(float(found[0, 1]) - 0.5 * 9 - 0.5) < 1  # half of them, of nine; and its share of the other half


def test_labels_of_two_kinds_are_never_confused_and_each_kind_is_judged_by_itself() -> None:
    same_kind = torch.block_diag(torch.ones(3, 3), torch.ones(2, 2), torch.ones(1, 1)).bool()
    met = torch.zeros(6, 6)
    met[0, 1] = met[1, 0] = 50.0
    times = confusion(met, torch.arange(1.0, 7.0), same_kind, prior_pairs=3.0)
    assert torch.equal(times, times.T)
    assert times[~same_kind].eq(1).all()
    assert times.diagonal().eq(0).all()
    assert times[0, 1] > 2 > 1 > times[0, 2] == times[1, 2] > 0
    assert times[3, 4] == 1  # nothing is known of the second kind


def test_agreement_on_a_frequent_label_is_weaker_evidence() -> None:
    pool = model_of(Candidates.from_lists([[(0,), (1,)]] * 6, classes=2), ProximityGraph.from_edges([0], [1]))
    crowded = torch.tensor([[1.0, 0.0]] * 4 + [[0.0, 1.0]] * 2)[:, :, None]
    rarity = Potential(Trust.constant(0.1), 0.01, 4.0).rarity(pool, crowded)[:, 0]
    assert rarity.tolist() == pytest.approx([4 / 5, 4 / 3])  # three would be typical, and everybody counts one more
    assert Potential(Trust.constant(0.1), 0.01, 1.1).rarity(pool, crowded)[:, 0].tolist() == pytest.approx(
        [1 / 1.1, 1.1]
    )


def test_fitting_recovers_the_errors_of_pairs_whose_labels_are_known() -> None:
    generator = torch.Generator().manual_seed(0)
    length = 0.5 + torch.rand(5000, generator=generator)
    differ = (torch.rand(5000, generator=generator) < torch.sigmoid(-1.5 + 3 * (length - 1))).float()
    trust = Trust.fitted(length, differ)
    assert abs(trust.level + 1.5) < 0.15
    assert abs(trust.slope - 3) < 0.4


def test_trust_never_grows_with_distance() -> None:
    length = torch.linspace(0.5, 1.5, 100)
    falling = Trust.fitted(length, 1 - length / 2)
    assert falling.slope == 0
    assert float(falling.error(length)[0]) == pytest.approx(0.5, abs=0.01), "then it is the mean for all"


def test_what_a_receiver_said_is_not_sent_back_to_it() -> None:
    pool = model_of(Candidates.from_lists([[(0,), (1,)], [(0,)]], classes=2), ProximityGraph.from_edges([0], [1]))
    messages, _ = propagate(pool, Potential(Trust.constant(0.1), 0.01, 1.0), zero_messages(pool, 1), Schedule(100))
    assert torch.allclose(messages[1, :, 0], torch.tensor([0.9, 0.1]), atol=1e-5)
    ((_, believed),) = cavities(pool, messages, pool.beliefs(pool.heard(messages)))
    assert torch.allclose(believed[0, :, 0], torch.tensor([0.5, 0.5]), atol=1e-5)


def test_a_hidden_formula_says_nothing_and_its_sample_still_passes_on_what_it_hears() -> None:
    # 0 knows its label; 1 would contradict; 2 is free. They form a chain 0 - 1 - 2.
    candidates = Candidates.from_lists([[(0,)], [(1,)], [(0,), (1,)]], classes=2)
    pool = model_of(candidates, ProximityGraph.from_edges([0, 1], [1, 2]))
    potential = Potential(Trust.constant(0.1), 0.01, 1.0)
    hidden = torch.tensor([[False, False], [False, True], [False, False]])  # in the second of two states
    messages, _ = propagate(pool, potential, zero_messages(pool, 2), Schedule(100), hidden=hidden)
    belief = pool.beliefs(pool.heard(messages), hidden)
    torch.testing.assert_close(belief[1], torch.tensor([[0.0, 0.9], [1.0, 0.1]]))
    torch.testing.assert_close(belief[2], torch.tensor([[0.1, 0.82], [0.9, 0.18]]))
    left_out, _ = propagate(replace(pool, disbelieved=hidden[:, 1]), potential, zero_messages(pool, 1), Schedule(100))
    torch.testing.assert_close(left_out[:, :, 0], messages[:, :, 1])


def test_states_come_in_order_and_different() -> None:
    labels = torch.tensor([[0, 0, 1], [0, 0, 1], [0, 1, 1]])
    states = States(labels, torch.tensor([1.0, 1.0, 2.0]))
    assert states.best(5, apart=0.4).labels.tolist() == [[1, 0], [1, 0], [1, 0]]
    assert states.best(5, apart=0.2).labels.tolist() == [[1, 0, 0], [1, 0, 0], [1, 0, 1]]
    assert states.best(1, apart=0.2).score.tolist() == [2.0]


def searched(candidates: Candidates, embeddings: torch.Tensor, constants: InferenceSettings) -> Found:
    pool = model_of(candidates, ProximityGraph.from_embeddings(embeddings, k=3))
    potential = Potential(Trust(*constants.first_trust), constants.least_error, constants.rarest)
    return search(pool, potential, constants, torch.Generator().manual_seed(0), lambda: False)


def test_where_all_folds_meet_the_search_ends_at_once_with_the_truth() -> None:
    candidates, embeddings, gold = clustered(60, slots=2, classes=4, spread=0.02)
    found = searched(candidates, embeddings, InferenceSettings())
    assert found.complete
    assert len(found.states) == 5
    assert torch.bincount(found.fold).tolist() == [12] * 5
    for states in found.states:
        assert float((states.labels[:, 0] != gold.flatten()).float().mean()) < 0.05
        assert states.labels.shape[1] <= 2, "no more than the hurried ones"


def test_where_they_do_not_meet_more_generations_find_nothing_worse() -> None:
    candidates, embeddings, _ = clustered(30, slots=2, classes=4)
    brief, long = (searched(candidates, shuffled(embeddings), InferenceSettings(generations=g)) for g in (0, 2))
    assert all(bool((states.score.diff() <= 0).all()) for states in long.states)
    gained = [float(b.score[0] - a.score[0]) for a, b in zip(brief.states, long.states, strict=True)]
    assert min(gained) >= 0
    assert max(gained) > 0


def test_a_folds_own_formulas_have_no_part_in_its_states() -> None:
    candidates, embeddings, _ = clustered(20, slots=2, classes=4)
    constants = InferenceSettings(generations=0)
    one = searched(candidates, shuffled(embeddings), constants)
    rows = [candidates.labels[candidates.sample == i].tolist() for i in range(20)]
    fold = [(one.fold == f).tolist() for f in range(5)]
    changed = Candidates.from_lists([[(0, 0)] if fold[2][i] else row for i, row in enumerate(rows)], classes=4)
    other = searched(changed, shuffled(embeddings), constants)
    same = [torch.equal(a.labels, b.labels) for a, b in zip(one.states, other.states, strict=True)]
    assert same == [False, False, True, False, False]


def test_states_compete_where_they_differ_and_nowhere_else() -> None:
    candidates = Candidates.from_lists([[(0,), (1,)]] * 5, classes=2)
    pool = model_of(candidates, ProximityGraph.from_edges([0, 1, 3], [1, 2, 4]))  # 0 - 1 - 2 and 3 - 4
    first, second, third = [0, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 0, 1, 1]
    labels = torch.tensor([first, second, third]).T
    equal = Score(torch.zeros(5, 3), torch.zeros(3, 3))
    half = [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.5, 0.0, 0.5], [0.5, 0.0, 0.5]]
    assert region_weights(pool, labels, equal, 1.0).tolist() == half

    samples, pairs = torch.zeros(5, 3), torch.zeros(3, 3)
    samples[0, 1] = pairs[0, 1] = pairs[1, 1] = torch.tensor(3.0).log() / 3  # three to one, in its own region
    samples[4, 1] = pairs[2, 1] = samples[0, 2] = samples[2, 1] = 5.0  # what lies elsewhere is of no matter
    samples[3, 2] = -torch.tensor(3.0).log()
    weight = region_weights(pool, labels, Score(samples, pairs), 1.0)
    expected = [[0.25, 0.75, 0], [0.25, 0.75, 0], [1, 0, 0], [0.75, 0, 0.25], [0.75, 0, 0.25]]
    torch.testing.assert_close(weight, torch.tensor(expected, dtype=torch.double), atol=1e-6, rtol=0)
    sharper = region_weights(pool, labels, Score(samples, pairs), 2.0)
    assert sharper[0].tolist() == pytest.approx([0.1, 0.9, 0])

    twice = torch.tensor([first, second, second]).T  # found twice, it is no likelier
    assert region_weights(pool, twice, equal, 1.0)[0].tolist() == [0.5, 0.5, 0.0]
    assert region_weights(pool, labels[:, [0, 0]], Score(samples[:, :2], pairs[:, :2]), 1.0).tolist() == [[1, 0]] * 5


def test_the_fewest_candidates_hold_the_mass() -> None:
    candidates = Candidates.from_lists([[(0,), (1,), (2,), (3,)], [(0,), (1,)]], classes=4)
    probability = torch.tensor([0.1, 0.5, 0.3, 0.1, 1.0, 0.0])

    def kept(mass: float) -> list[bool]:
        return smallest_credible_set(candidates, probability, mass, 1e-3).tolist()

    assert kept(0.8) == [False, True, True, False, True, False]
    assert kept(0.81) == [True, True, True, True, True, False], "equals stay"
    assert kept(1e-6) == [False, True, False, False, True, False]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.sampled_from([0.3, 0.8, 0.95]), st.randoms())
def test_what_is_kept_holds_the_mass_whatever_the_order(counts: list[int], mass: float, random: Random) -> None:
    candidates = Candidates.from_lists([[(i,) for i in range(len(counts))]], classes=8)
    probability = torch.tensor(counts) / sum(counts)
    kept = smallest_credible_set(candidates, probability, mass, 1e-3)
    assert float(probability[kept].sum()) >= mass - 1e-6
    lowest = probability[kept].min()
    assert float(probability[probability > lowest * 1.01].sum()) < mass, "those above the last do not"
    order = list(range(len(counts)))
    random.shuffle(order)
    assert torch.equal(smallest_credible_set(candidates, probability[order], mass, 1e-3), kept[order])


def numbers_of(source: str) -> set[float]:
    """The numbers written in some code outside the class InferenceSettings."""
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if not isinstance(node, ast.ClassDef) or node.name != "InferenceSettings"]
    values = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {value for value in values if isinstance(value, int | float | complex) and not isinstance(value, bool)}


def test_every_number_is_a_setting() -> None:
    assert numbers_of('x = -3 + y[4]  # 5\n"""6"""\nz = True\nclass InferenceSettings: a = 7') == {3, 4}
    files = sorted(Path(clipper.pruning.joint.__file__).parent.rglob("*.py"))
    assert 1 < len(files) <= 10
    assert len(fields(InferenceSettings)) <= 20
    for file in [*files, Path(clipper.pruning.pairs.__file__), Path(clipper.pruning.factors.__file__)]:
        assert numbers_of(file.read_text(encoding="utf-8")) <= {0, 1 / 2, 1, 2}, file.name  # and -1, which is -(1)
