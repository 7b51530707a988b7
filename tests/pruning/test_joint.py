"""Joint inference: what holds for every pool."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import clipper
from clipper import Candidates, ProximityGraph
from clipper.errors import InputError
from clipper.pruning.joint import InferenceSettings
from tests.oracles import Problem
from tests.pruning.pools import clustered, shuffled
from tests.strategies import as_tensors, problems


@pytest.mark.slow
@settings(max_examples=30)
@given(problems(kinds=True), st.sampled_from([0.3, 0.95, 1.0]), st.integers(0, 3))
def test_no_sample_ever_loses_its_last_candidate(problem: Problem, mass: float, seed: int) -> None:
    candidates, graph = as_tensors(problem)
    posterior = clipper.infer(candidates, graph, starts=2, seed=seed)
    pruning = posterior.prune(mass)
    assert min(pruning.candidates.counts) >= 1
    totals = torch.zeros(candidates.samples).index_add_(0, candidates.sample, posterior.probability)
    assert torch.allclose(totals, torch.ones(candidates.samples), atol=1e-4)
    assert pruning.candidates.narrowed(pruning.allowed).counts == pruning.candidates.counts
    assert pruning.edges.shape == graph.source.shape
    believed = posterior.suspicion <= 1 / 2
    assert bool(candidates.contains(posterior.labels)[believed].all()), "the most probable labels are a candidate"
    torch.testing.assert_close(posterior.marginals.sum(2), (posterior.labels >= 0).float())
    assert 0 <= posterior.expected_accuracy <= 1.0001


def test_a_single_sample_without_edges_keeps_everything() -> None:
    candidates = Candidates.from_rule(sum, targets=[3], slots=2, classes=4)
    posterior = clipper.infer(candidates, ProximityGraph.from_edges([], []))
    assert posterior.probability.tolist() == pytest.approx([0.25] * 4)
    assert posterior.prune().discarded == 0
    assert not posterior.converged


def test_a_pool_of_duplicates_is_inferred_all_the_same() -> None:
    candidates = Candidates.from_rule(sum, targets=[4] * 12, slots=2, classes=5)
    graph = ProximityGraph.from_embeddings(torch.zeros(12, 2, 3), k=4)
    posterior = clipper.infer(candidates, graph)
    assert bool(torch.isfinite(posterior.probability).all())
    assert min(posterior.prune().candidates.counts) >= 1


def test_neighbours_that_contradict_each_other_leave_a_candidate() -> None:
    candidates = Candidates.from_lists([[(0,), (1,)], [(2,)], [(3,)]], classes=4)
    graph = ProximityGraph.from_edges([0, 0, 1], [1, 2, 2])
    posterior = clipper.infer(candidates, graph, trust=0.01)
    assert posterior.probability.tolist() == pytest.approx([0.5, 0.5, 1.0, 1.0], abs=1e-3)
    assert min(posterior.prune(0.5).candidates.counts) >= 1


@pytest.mark.slow
def test_the_same_seed_gives_the_same_posterior() -> None:
    candidates, embeddings, _ = clustered(30)
    graph = ProximityGraph.from_embeddings(embeddings, k=5)
    for method in ("joint", "em"):
        first, second = (clipper.infer(candidates, graph, method=method, seed=3) for _ in range(2))
        assert torch.equal(first.probability, second.probability)
        assert torch.equal(first.suspicion, second.suspicion)
        assert first.energy == second.energy
    noise = ProximityGraph.from_embeddings(shuffled(embeddings), k=2)
    one, same, other = (
        clipper.infer(candidates, noise, trust=0.2, seed=seed, settings=InferenceSettings(rounds=20, generations=1))
        for seed in (3, 3, 4)
    )
    assert torch.equal(one.marginals, same.marginals)
    assert not torch.equal(one.marginals, other.marginals), "what the seed is for"


@pytest.mark.slow
def test_direction_and_repetition_of_edges_are_of_no_matter() -> None:
    candidates, embeddings, _ = clustered(20)
    graph = ProximityGraph.from_embeddings(embeddings, k=3)
    source, target, distance = (
        torch.cat(ends)
        for ends in ((graph.source, graph.target), (graph.target, graph.source), (graph.distance, graph.distance))
    )
    both = ProximityGraph.from_edges(source, target, distance)
    again = ProximityGraph.from_edges(source.repeat(2), target.repeat(2), distance.repeat(2))
    swapped = ProximityGraph.from_edges(target, source, distance)
    order = torch.randperm(len(source), generator=torch.Generator().manual_seed(0))
    mixed = ProximityGraph.from_edges(source[order], target[order], distance[order])
    for trust in (0.2, None):
        first, *others = (clipper.infer(candidates, g, starts=10, trust=trust) for g in (both, again, swapped, mixed))
        for second in others:
            assert torch.allclose(first.probability, second.probability, atol=1e-3)
            assert first.verdict == second.verdict


def test_a_classifier_may_have_a_say() -> None:
    candidates = Candidates.from_rule(sum, targets=[3, 3], slots=2, classes=4)
    says = torch.full((2, 2, 4), -5.0)
    says[0, 0, 1] = says[0, 1, 2] = says[1, 0, 0] = says[1, 1, 3] = 0.0
    posterior = clipper.infer(candidates, ProximityGraph.from_edges([], []), log_probs=says)
    assert posterior.labels.tolist() == [[1, 2], [0, 3]]


def test_clusters_are_recovered_and_calibrated() -> None:
    candidates, embeddings, gold = clustered(80, spread=0.5)
    posterior = clipper.infer(candidates, ProximityGraph.from_embeddings(embeddings, k=6))
    assert posterior.converged
    report = posterior.calibration(gold)
    assert report.right > 0.9
    assert report.retained[0.95] >= 0.9
    assert posterior.prune(0.95).gold_retained(gold) == pytest.approx(report.retained[0.95])
    assert posterior.prune(0.95).retained < 0.2


def test_labels_that_lie_beside_one_another_are_found_out() -> None:
    generator = torch.Generator().manual_seed(0)
    centres = 2 * torch.randn(6, 8, generator=generator)
    centres[4] = centres[3] + 0.15  # hard to tell apart, and for no label else
    gold = torch.randint(0, 6, (120, 3), generator=generator)
    points = centres[gold] + 0.3 * torch.randn(120, 3, 8, generator=generator)
    graph = ProximityGraph.from_embeddings(points, k=8)
    posterior = clipper.infer(Candidates.from_rule(sum, gold.sum(1), 3, 6), graph)
    assert divmod(int(posterior.confusion.argmax()), 6) == (3, 4)
    assert posterior.confusion[3, 4] > 3
    assert posterior.prune(0.95).gold_retained(gold) >= 0.93


def test_a_few_pairs_say_nothing_of_many_labels() -> None:
    candidates, embeddings, _ = clustered(40, slots=2, classes=20)
    posterior = clipper.infer(candidates, ProximityGraph.from_embeddings(embeddings, k=5), starts=8)
    assert posterior.verdict in ("joint", "ambiguous")
    assert torch.equal(posterior.confusion, 1 - torch.eye(20))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_shuffled_embeddings_make_it_abstain(seed: int) -> None:
    candidates, embeddings, gold = clustered(60, seed=seed)
    posterior = clipper.infer(candidates, ProximityGraph.from_embeddings(shuffled(embeddings), k=6))
    assert posterior.verdict == "uninformative"
    assert posterior.verification.sharpness == 0, "what noise has to say of labels is not believed"
    assert posterior.suspicion.tolist() == [0.0] * 60
    alone = clipper.infer(candidates, ProximityGraph.from_edges([], []))
    torch.testing.assert_close(posterior.marginals, alone.marginals, atol=1e-4, rtol=0)
    pruning = posterior.prune()
    assert pruning.discarded == 0
    assert pruning.gold_retained(gold) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"trust": 1.5}, "of at least 1e-06 and below 1"),
        ({"starts": 0}, "starts of at least 1"),
        ({"log_probs": torch.zeros(2, 2, 3)}, "log_probs of shape"),
        ({"wrong": 1.0}, "wrong, the share of wrong targets,"),
        ({"deadline": -1}, "deadline, in seconds,"),
        ({"method": "magic"}, "method"),
        ({"known": torch.zeros(2, 2)}, "known labels of shape"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, object], message: str) -> None:
    candidates = Candidates.from_rule(sum, targets=[3, 3], slots=2, classes=4)
    with pytest.raises(InputError, match=message):
        clipper.infer(candidates, ProximityGraph.from_edges([0], [2]), **arguments)  # type: ignore[arg-type]


def test_a_mass_of_nothing_and_edges_to_nowhere_are_refused() -> None:
    candidates = Candidates.from_rule(sum, targets=[3, 3], slots=2, classes=4)
    with pytest.raises(InputError, match="mass to be a finite number above 0"):
        clipper.infer(candidates, ProximityGraph.from_edges([0], [2]), starts=1).prune(0)
    with pytest.raises(InputError, match="instances"):
        clipper.infer(candidates, ProximityGraph.from_edges([0], [9]))


def test_prune_and_clipper_know_the_joint_objective() -> None:
    candidates, embeddings, _ = clustered(30, slots=2, classes=5)
    clip = clipper.Clipper(objective="joint", mass=0.9)
    graph = clip.graph(candidates, embeddings)
    assert len(graph) == 8 * embeddings.shape[0] * embeddings.shape[1], "one neighbour would be too few"
    expected = clipper.infer(candidates, graph).prune(0.9)
    assert torch.equal(clip.prune(candidates, embeddings).keep, expected.keep)
    assert torch.equal(clipper.prune(candidates, graph, "joint", mass=0.9).keep, expected.keep)
    with pytest.raises(InputError, match="leave pool out"):
        clipper.prune(candidates, graph, "joint", pool=candidates.batch(range(30)))


def test_who_asks_for_joint_inference_batch_by_batch_is_warned_once() -> None:
    candidates, embeddings, _ = clustered(6, slots=2, classes=3)
    clip = clipper.Clipper(objective="joint")
    clip(candidates, embeddings)
    with pytest.warns(UserWarning, match="asked a second time"):
        clip(candidates, embeddings)
    clip(candidates, embeddings)
    single = clipper.Clipper(objective="exact")
    for _ in range(3):
        single(candidates, embeddings)


def test_one_neighbour_is_one_under_every_objective_and_none_is_the_usual_number() -> None:
    candidates, embeddings, _ = clustered(30, slots=2, classes=5)
    found = {
        (objective, k): len(clipper.Clipper(k=k, objective=objective).graph(candidates, embeddings)) // 60
        for objective in ("exact", "paper", "random", "joint")
        for k in (1, 3, None)
    }
    assert found == {(o, k): k or (8 if o == "joint" else 1) for o, k in found}
    near = clipper.Clipper(radius=1e9, objective="joint").graph(candidates, embeddings)
    assert len(near) == 60 * 58, "all within the radius"


@pytest.mark.parametrize("trust", [0.3, 0.01, 0.005, 1e-5])
def test_trust_is_used_as_given(trust: float) -> None:
    candidates = Candidates.from_lists([[(0,), (1,)], [(1,)]], classes=2)
    for value in (trust, clipper.Trust.constant(trust)):
        posterior = clipper.infer(candidates, ProximityGraph.from_edges([0], [1]), trust=value, starts=2)
        torch.testing.assert_close(posterior.marginals[0, 0], torch.tensor([trust, 1 - trust]))


def test_an_unsettled_posterior_keeps_everything_unless_told_to_prune_by_nearest_neighbours() -> None:
    candidates, embeddings, _ = clustered(20, slots=2, classes=5)
    graph = ProximityGraph.from_embeddings(embeddings, k=4)
    posterior = replace(clipper.infer(candidates, graph, starts=2), verdict="unsettled")
    nearest = clipper.prune(candidates, ProximityGraph.from_embeddings(embeddings, k=1))
    assert posterior.prune().discarded == 0
    pruning = posterior.prune(fallback="exact")
    assert pruning.discarded > 0
    assert torch.equal(pruning.keep, nearest.keep)
    assert int(pruning.edges.sum()) == int(nearest.edges.sum())
    assert not posterior.converged
    with pytest.raises(InputError, match="fallback"):
        posterior.prune(fallback="nearest")  # type: ignore[arg-type]
    believed = replace(posterior, verdict="joint")
    assert torch.equal(believed.prune(fallback="exact").keep, believed.prune().keep), "of no matter if it is settled"


def test_a_deadline_ends_the_search_and_nothing_is_pruned() -> None:
    candidates, embeddings, _ = clustered(60, slots=3, classes=5, spread=0.7)
    assert clipper.infer(candidates, embeddings, deadline=1e6).verdict == "joint"
    posterior = clipper.infer(candidates, embeddings, deadline=0)
    assert posterior.verdict == "unsettled"
    assert posterior.prune().discarded == 0
    torch.testing.assert_close(posterior.marginals.sum(2), torch.ones(60, 3))


def test_progress_is_told_in_shares() -> None:
    candidates, embeddings, _ = clustered(40, slots=2, classes=5)
    told: list[float] = []
    clipper.infer(candidates, ProximityGraph.from_embeddings(shuffled(embeddings), k=5), progress=told.append)
    assert len(told) > 1
    assert told == sorted(told)
    assert 0 <= told[0] < told[-1] <= 1


def test_the_baseline_recovers_clean_clusters() -> None:
    candidates, embeddings, gold = clustered(100, spread=0.1)
    posterior = clipper.infer(candidates, embeddings, method="em")
    assert float((posterior.labels == gold).float().mean()) > 0.95
    assert bool(candidates.contains(posterior.labels).all())
    torch.testing.assert_close(posterior.marginals.sum(2), torch.ones(100, 3))
    pruning = posterior.prune()
    assert pruning.gold_retained(gold) > 0.95
    assert pruning.retained < 0.1


def test_a_good_classifier_is_no_reason_to_abstain() -> None:
    candidates, embeddings, gold = clustered(60)
    for certainty in (1, 8):
        says = (certainty * torch.eye(10)[gold]).log_softmax(-1)
        posterior = clipper.infer(candidates, embeddings, log_probs=says)
        assert posterior.verdict == "joint"
        assert torch.equal(posterior.labels, gold)
        assert posterior.prune().retained < 0.1


def test_what_is_asked_for_is_unsure_and_new_each_time() -> None:
    candidates, embeddings, _ = clustered(40, slots=2, classes=5, spread=0.6)
    posterior = clipper.infer(candidates, embeddings)
    asked = posterior.ask(10)
    assert len(set(asked.tolist())) == 10
    assert torch.equal(posterior.ask(4), asked[:4])
    entropy = -torch.xlogy(posterior.marginals, posterior.marginals).sum(2).flatten()
    assert float(entropy[asked].mean()) > 2 * float(entropy.mean())
    for count in (0, 1.5, "all"):
        with pytest.raises(InputError, match="k"):
            posterior.ask(count)  # type: ignore[arg-type]


def test_it_expects_as_many_labels_to_be_right_as_its_marginals_say() -> None:
    candidates = Candidates.from_lists([[(0, 1), (1, 0)], [(1,)], [(0,), (1,)]], classes=2)
    posterior = clipper.infer(candidates, ProximityGraph.from_edges([0], [2]), trust=0.2)
    sure = posterior.marginals.amax(2)[posterior.labels >= 0]
    assert posterior.expected_accuracy == pytest.approx(float(sure.mean()))
    assert sure.tolist() == pytest.approx([0.8, 0.8, 1, 0.5], abs=1e-4)
