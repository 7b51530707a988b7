"""Held-out verification, doubt in targets, and known labels: what is believed, and what is not."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
import torch
from torch import Tensor

from clipper import Candidates, Lattice, ProximityGraph, infer
from clipper.benchmarks.statistics import auroc
from clipper.errors import InputError
from clipper.pruning.joint import InferenceSettings
from clipper.pruning.joint.verification import (
    correlation_along_edges,
    formula_leak,
    misfit_of,
    prior_surprise,
    verified,
)
from clipper.pruning.pairs import Edges
from tests.pruning.pools import clustered, model_of, random_pool, shuffled

CONSTANTS = InferenceSettings()
NOWHERE = ProximityGraph.from_edges([], [])


def rows_of(candidates: Candidates, sample: int) -> list[list[int]]:
    return candidates.labels[candidates.sample == sample].tolist()


def surprise_of(rows: list[list[int]], chances: list[list[float]]) -> float:
    """-log of the probability of one of these candidates if slots are labelled independently."""
    return -math.log(sum(math.prod(p[y] for p, y in zip(chances, row, strict=False) if y >= 0) for row in rows))


def fitted_prior(samples: list[list[list[int]]], prior: list[float]) -> list[float]:
    """Expectation-maximisation over the formulas of some samples; each label counts 1/c besides."""
    c = len(prior)
    for _ in range(CONSTANTS.hurried):
        counts = [1 / c] * c
        for rows in samples:
            weights = [math.prod(prior[y] for y in row if y >= 0) for row in rows]
            for row, weight in zip(rows, weights, strict=True):
                for y in row:
                    if y >= 0:
                        counts[y] += weight / sum(weights)
        prior = [count / sum(counts) for count in counts]
    return prior


@pytest.mark.parametrize("seed", range(8))
def test_prior_surprise_is_that_of_the_better_of_two_fits(seed: int) -> None:
    candidates, _ = random_pool(seed, tree=True)
    n, m, c = candidates.samples, candidates.slots, candidates.classes
    rows, random = [rows_of(candidates, i) for i in range(n)], Random(seed)
    fold = [i % 2 for i in range(n)]
    labels = [[random.choice(row) for row in rows] for _ in range(2)]  # a state of each fold
    left_out = {n - 1} if seed % 2 else set()
    pool = model_of(candidates, NOWHERE)
    if left_out:
        pool = replace(pool, disbelieved=torch.tensor([i in left_out for i in range(n)]))
    states = torch.tensor(labels).flatten(1).T  # (n*m, folds)
    found = prior_surprise(pool, torch.tensor(fold), states, CONSTANTS).tolist()
    for f in range(2):
        seen = [rows[i] for i in range(n) if fold[i] != f and i not in left_out]
        often = [sum(row.count(y) for row in labels[f]) + 1 / c for y in range(c)]
        fits = [fitted_prior(seen, start) for start in ([1 / c] * c, [count / sum(often) for count in often])]
        best = min(fits, key=lambda prior: sum(surprise_of(row, [prior] * m) for row in seen))
        for i in range(n):
            if fold[i] == f:
                assert found[i] == pytest.approx(surprise_of(rows[i], [best] * m), abs=1e-3)


def verdict_pool(seed: int) -> tuple[Candidates, Tensor, Tensor]:
    """Sums of two of four labels, what was heard of them `(80, 4)`, mostly right, and the prior surprise."""
    generator = torch.Generator().manual_seed(seed)
    gold = torch.randint(0, 4, (40, 2), generator=generator)
    targets = gold.sum(1)
    targets[:4] = (targets[:4] + 3) % 7  # wrong
    candidates = Candidates.from_rule(sum, targets, 2, 4)
    heard = 4 * torch.eye(4)[gold.flatten()] + torch.randn(80, 4, generator=generator)
    prior = torch.tensor([-math.log(len(rows_of(candidates, i)) / 16) for i in range(40)])
    return candidates, heard, prior


def believed(heard: Tensor, sharpness: float, samples: int) -> list[list[list[float]]]:
    """What slots are labelled by, `(n, m, c)`: what was heard, or, rarely, anything."""
    said = (sharpness * heard).double().softmax(1) * (1 - CONSTANTS.least_error)
    return (said + CONSTANTS.least_error / heard.shape[1]).view(samples, -1, heard.shape[1]).tolist()


def bayes(candidates: Candidates, heard: Tensor, prior: Tensor, sharpness: float, wrong: float) -> list[float]:
    """The probability that each target is wrong, by Bayes' rule."""
    said = believed(heard, sharpness, candidates.samples)
    found = []
    for i in range(candidates.samples):
        if_right = (1 - wrong) * math.exp(-surprise_of(rows_of(candidates, i), said[i]))
        if_wrong = wrong * math.exp(-float(prior[i]))
        found.append(if_wrong / (if_wrong + if_right))
    return found


@pytest.mark.parametrize("wrong", [0.0, 0.02, 0.1, 0.4])
def test_suspicion_is_bayes_rule_at_the_sharpness_that_makes_the_formulas_most_probable(wrong: float) -> None:
    candidates, heard, prior = verdict_pool(0)
    pool = model_of(candidates, NOWHERE)
    found = verified(pool, heard[:, :, None], prior, wrong, CONSTANTS)
    assert found.wrong == wrong
    assert found.suspicion.tolist() == pytest.approx(bayes(candidates, heard, prior, found.sharpness, wrong), abs=1e-4)

    def gains(sharpness: float) -> list[float]:
        said = believed(heard, sharpness, 40)
        return [
            math.log((1 - wrong) * math.exp(float(prior[i]) - surprise_of(rows_of(candidates, i), said[i])) + wrong)
            for i in range(40)
        ]

    best = max(CONSTANTS.sharpness, key=lambda trial: sum(gains(trial)))
    assert found.sharpness == pytest.approx(best)
    assert 0 < best < max(CONSTANTS.sharpness)
    assert found.gain == pytest.approx(sum(gains(best)) / 40, abs=1e-5)
    assert found.explained == pytest.approx(sum(gains(best)) / float(prior.sum()), abs=1e-5)


def test_the_share_of_wrong_targets_is_fitted_to_its_own_suspicions() -> None:
    candidates, heard, prior = verdict_pool(0)
    found = verified(model_of(candidates, NOWHERE), heard[:, :, None], prior, None, CONSTANTS)
    expected = bayes(candidates, heard, prior, found.sharpness, found.wrong)
    assert found.suspicion.tolist() == pytest.approx(expected, abs=1e-4)
    assert found.wrong == pytest.approx(sum(expected) / 41, abs=2 * CONSTANTS.still)
    assert 0.03 < found.wrong < 0.2
    assert auroc(found.suspicion, torch.arange(40) < 4) == 1


def test_what_is_heard_is_believed_no_further_than_formulas_bear_it_out() -> None:
    candidates, heard, prior = verdict_pool(1)
    pool = model_of(candidates, NOWHERE)
    noise = verified(pool, shuffled(heard.view(40, 2, 4)).view(80, 4, 1), prior, 0.0, CONSTANTS)
    plain = verified(pool, heard[:, :, None], prior, 0.1, CONSTANTS)
    doubled = verified(pool, 2 * heard[:, :, None], prior, 0.1, CONSTANTS)
    assert noise.sharpness < 0.25 < plain.sharpness
    assert noise.explained < 0.05 < CONSTANTS.explained < plain.explained
    assert doubled.sharpness == pytest.approx(plain.sharpness / 2), "log-odds twice as large count half"


@pytest.mark.parametrize("mistaken", [0.0, 0.1])
def test_what_is_heard_is_tempered_and_what_is_known_is_not(mistaken: float) -> None:
    candidates = Candidates.from_lists([[(0, 1), (1, 0)], [(2,)]], classes=3)
    pool = model_of(candidates, NOWHERE)
    generator = torch.Generator().manual_seed(0)
    heard, unary = torch.randn(4, 3, 2, generator=generator), torch.randn(4, 3, 1, generator=generator)
    field = replace(pool, unary=unary).tempered(heard, 0.5, mistaken)
    chance = (field - unary).softmax(1)[:3]  # the last slot is unused
    torch.testing.assert_close(chance, (heard / 2).softmax(1)[:3] * (1 - mistaken) + mistaken / 3)


@pytest.mark.parametrize("seed", range(5))
def test_a_leak_is_the_odds_of_equal_formulas_against_chance(seed: int) -> None:
    random = Random(seed)
    n, m = 12, 2
    pairs = {(random.randrange(n * m), random.randrange(n * m)) for _ in range(30)}
    template = [random.randrange(3) for _ in range(n)]
    edges = Edges.of(ProximityGraph.from_edges(*zip(*pairs, strict=True)), instances=n * m)
    pool = replace(model_of(Candidates.from_rule(sum, template, m, 2), NOWHERE), edges=edges)
    across = {(min(a, b), max(a, b)) for a, b in pairs if a // m != b // m}
    equal = sum(template[a // m] == template[b // m] for a, b in across)
    rows = {1: [(0, 1), (1, 0)], 2: [(1, 1)], 0: [(0, 0)]}  # by the target of a sum of two bits
    together = {True: 0.0, False: 0.0}
    for i, j in itertools.permutations(range(n), 2):  # labels of two samples, by their formulas alone
        for one, other in itertools.product(rows[template[i]], rows[template[j]]):
            weight = 1 / len(rows[template[i]]) / len(rows[template[j]])
            together[template[i] == template[j]] += weight * sum(a == b for a in one for b in other)
    chance = together[True] / (together[True] + together[False])
    share = (equal + chance) / (len(across) + 1)
    expected = (share / (1 - share)) / (chance / (1 - chance))
    assert formula_leak(pool, torch.tensor(template)) == pytest.approx(expected)


def test_formulas_that_say_all_are_no_leak() -> None:
    """Samples of one formula have the same labels, so that near instances have the same formula."""
    gold = torch.randint(0, 10, (60, 2), generator=torch.Generator().manual_seed(0))
    candidates = Candidates.from_lists([[tuple(row)] for row in gold.tolist()], classes=10)
    near = torch.randn(10, 8, generator=torch.Generator().manual_seed(1))[gold]
    posterior = infer(candidates, near + 0.1 * torch.randn(60, 2, 8, generator=torch.Generator().manual_seed(2)))
    assert posterior.verification.leak < 2


def edges_between(samples: int, slots: int, many: int, random: Random) -> tuple[Edges, set[tuple[int, int]]]:
    """Some pairs of instances, as edges and as they are."""
    pairs = {tuple(sorted(random.sample(range(samples * slots), 2))) for _ in range(many)}
    return Edges.of(ProximityGraph.from_edges(*zip(*pairs, strict=True)), samples * slots), pairs


@pytest.mark.parametrize("seed", range(6))
def test_the_correlation_along_edges_leaves_out_what_labels_have_in_common(seed: int) -> None:
    random, (n, m, c) = Random(seed), (10, 2, 3)
    edges, pairs = edges_between(n, m, 25, random)
    pool = replace(model_of(Candidates.from_rule(sum, [2] * n, m, c), NOWHERE), edges=edges)
    value, label = [random.random() for _ in range(n)], [random.randrange(-1, c) for _ in range(n * m)]
    counted = [j for j in range(n * m) if label[j] >= 0]
    rest = dict.fromkeys(range(n * m), 0.0)
    for j in counted:
        alike = [value[k // m] for k in counted if label[k] == label[j]]
        rest[j] = value[j // m] - sum(alike) / len(alike)
    variance = sum(each**2 for each in rest.values()) / len(counted)
    across = [(a, b) for a, b in pairs if a // m != b // m]
    repeated = Counter((a // m, b // m) for a, b in across).values()
    error = math.sqrt(sum(many**2 for many in repeated))
    expected = sum(rest[a] * rest[b] for a, b in across) / variance / len(across), error / len(across)
    found = correlation_along_edges(pool, torch.tensor(value).double(), torch.tensor(label)[:, None])
    assert found == pytest.approx(expected, abs=1e-6)
    empty = replace(pool, edges=Edges.of(NOWHERE, n * m))
    assert correlation_along_edges(empty, torch.tensor(value), torch.tensor(label)[:, None]) == (0, 0)


@pytest.mark.parametrize("seed", range(4))
def test_a_misfit_is_the_share_of_targets_that_are_wrong_at_even_odds_if_they_are_alike(seed: int) -> None:
    candidates, heard, prior = verdict_pool(seed)
    edges, _ = edges_between(40, 2, 100, Random(seed))
    pool = replace(model_of(candidates, NOWHERE), edges=edges)
    wrong = bayes(candidates, heard, prior, 0.7, 1 / 2)
    expected = sum(chance > 1 / 2 for chance in wrong) / 40
    assert expected > 0
    settings = replace(CONSTANTS, alike=-10.0, certain=-100.0)  # whatever the correlation is
    assert misfit_of(pool, heard[:, :, None], prior, 0.7, settings) == pytest.approx(expected)
    prior[wrong.index(max(wrong))] = torch.inf  # nothing satisfies its target
    assert misfit_of(pool, heard[:, :, None], prior, 0.7, settings) == pytest.approx((40 * expected - 1) / 39)
    assert misfit_of(pool, heard[:, :, None], prior, 0.7, replace(CONSTANTS, alike=1.0)) == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_labels_are_not_relied_on_if_a_class_is_missing(seed: int) -> None:
    _, embeddings, gold = clustered(150, slots=2, classes=6, spread=0.3, seed=seed)
    complete, lacking = (
        infer(Candidates.from_rule(sum, gold.sum(1), 2, classes, impossible="keep"), embeddings) for classes in (6, 5)
    )
    assert complete.verdict == "joint"
    assert complete.verification.misfit == 0
    assert float((lacking.labels == gold).double().mean()) < 0.9 < lacking.expected_accuracy
    assert lacking.verdict == "unsettled"
    assert lacking.verification.misfit > CONSTANTS.negligible
    assert lacking.prune().discarded == 0


@pytest.mark.slow
def test_embeddings_that_carry_the_target_are_no_confirmation() -> None:
    generator = torch.Generator().manual_seed(0)
    gold = torch.randint(0, 10, (60, 3), generator=generator)
    background = torch.randn(28, 8, generator=generator)[gold.sum(1)]  # one for each target
    embeddings = background[:, None] + 0.3 * torch.randn(60, 3, 8, generator=generator)
    posterior = infer(Candidates.from_rule(sum, gold.sum(1), 3, 10), embeddings)
    assert posterior.verification.leak > CONSTANTS.leak
    assert posterior.verdict != "joint"
    assert posterior.prune().discarded == 0


def labels_for(trouble: str, slots: int, classes: int, generator: torch.Generator) -> Tensor:
    """50 samples' labels, skewed or as they come."""
    share = torch.ones(classes) if trouble != "skewed" else 0.5 ** torch.arange(classes).float()
    return torch.multinomial(share, 50 * slots, replacement=True, generator=generator).view(50, slots)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("trouble", ["skewed", "one target", "plain"])
@pytest.mark.parametrize("rule", ["sum", "xor"])
def test_noise_is_never_believed(rule: str, trouble: str, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    classes = 10 if rule == "sum" else 2
    targets = labels_for(trouble, 3, classes, generator).sum(1) % (2 if rule == "xor" else 28)
    if trouble == "one target":
        targets[:] = targets[0]
    candidates = Candidates.from_rule(lambda row: sum(row) % (2 if rule == "xor" else 28), targets, 3, classes)
    posterior = infer(candidates, torch.randn(50, 3, 8, generator=generator), seed=seed)
    assert posterior.verdict not in ("joint", "ambiguous")
    assert posterior.prune().discarded == 0


@pytest.mark.parametrize("seed", range(2))
def test_formulas_that_are_all_explained_perfectly_are_informative(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    gold = torch.randint(0, 5, (60, 3), generator=generator)
    embeddings = torch.randn(5, 8, generator=generator)[gold] + 0.05 * torch.randn(60, 3, 8, generator=generator)
    posterior = infer(Candidates.from_rule(lambda row: sum(row) % 5, gold.sum(1) % 5, 3, 5), embeddings)
    assert posterior.verification.explained > 0.95
    assert posterior.verdict == "joint"
    assert torch.equal(posterior.labels, gold)
    assert posterior.prune().retained < 0.1


def with_wrong_targets(samples: int, share: float, seed: int) -> tuple[Candidates, Tensor, Tensor, Tensor]:
    """Candidates, embeddings, gold labels, and which targets are wrong."""
    _, embeddings, gold = clustered(samples, slots=3, classes=6, spread=0.15, seed=seed)
    random = Random(seed)
    wrong = torch.zeros(samples, dtype=torch.bool)
    wrong[random.sample(range(samples), round(share * samples))] = True
    targets = gold.sum(1).tolist()
    given = [random.choice([t for t in targets if t != targets[i]]) if wrong[i] else targets[i] for i in range(samples)]
    return Candidates.from_rule(sum, given, 3, 6), embeddings, gold, wrong


@pytest.mark.parametrize("seed", range(4))
def test_wrong_targets_are_suspected_first(seed: int) -> None:
    candidates, embeddings, gold, wrong = with_wrong_targets(80, 0.1, seed)
    posterior = infer(candidates, embeddings, seed=seed)
    assert posterior.verdict == "joint"
    assert auroc(posterior.suspicion, wrong) >= 0.97
    assert float((posterior.labels == gold)[~wrong].float().mean()) > 0.97


@pytest.mark.parametrize("seed", [0, 2])
def test_a_sample_whose_target_is_probably_wrong_keeps_all_candidates_and_listens_to_its_neighbours(seed: int) -> None:
    candidates, embeddings, gold, wrong = with_wrong_targets(80, 0.1, seed)
    posterior = infer(candidates, embeddings, seed=seed)
    assert 0.05 < posterior.wrong < 0.2
    doubted = posterior.suspicion > 1 / 2
    assert torch.equal(doubted, wrong)
    assert float((posterior.labels == gold)[wrong].float().mean()) > 0.9
    assert not bool(candidates.contains(posterior.labels)[wrong].any()), "its target is not believed"
    kept, before = torch.tensor(posterior.prune().candidates.counts), torch.tensor(candidates.counts)
    assert torch.equal(kept[doubted], before[doubted])
    assert int(kept[~doubted].sum()) < int(before[~doubted].sum()) / 2
    table = posterior.to_arrow().to_pydict()
    said = {sample for sample, status in zip(table["sample"], table["status"], strict=True) if status == "wrong target"}
    assert said == set(doubted.nonzero()[:, 0].tolist())


def test_who_says_that_no_target_is_wrong_gets_no_suspicion() -> None:
    candidates, embeddings, _, wrong = with_wrong_targets(60, 0.1, 0)
    posterior = infer(candidates, embeddings, wrong=0)
    assert posterior.wrong == 0
    assert posterior.suspicion.tolist() == [0.0] * 60
    assert bool(candidates.contains(posterior.labels).all()), "every target is obeyed"
    given = infer(candidates, embeddings, wrong=0.1)
    assert given.wrong == pytest.approx(0.1)
    assert float(given.suspicion[wrong].mean()) > 0.5 > float(given.suspicion[~wrong].mean())


def test_a_target_that_nothing_satisfies_is_wrong_and_its_sample_is_labelled_by_its_neighbours() -> None:
    _, embeddings, gold = clustered(60, slots=2, classes=5, spread=0.1)
    targets = gold.sum(1).tolist()
    targets[7] = 99
    candidates = Candidates.from_rule(sum, targets, 2, 5, impossible="keep")
    posterior = infer(candidates, embeddings)
    assert posterior.verdict == "joint"
    assert float(posterior.suspicion[7]) == 1
    assert torch.equal(posterior.labels, gold)
    torch.testing.assert_close(posterior.marginals.sum(2), torch.ones(60, 2))
    assert posterior.prune().candidates.counts[7] == 0
    assert infer(candidates, embeddings, wrong=0).suspicion.nonzero().tolist() == [[7]]  # all others are right


def test_known_labels_are_obeyed_against_all_neighbours() -> None:
    candidates, embeddings, gold = clustered(40, slots=2, classes=5, spread=0.1)
    sample = int((gold[:, 0] != gold[:, 1]).nonzero()[0])
    known = torch.full_like(gold, -1)
    known[sample] = gold[sample].flip(0)  # as good for the formula, against what all neighbours say
    for method in ("joint", "em"):
        posterior = infer(candidates, embeddings, known=known, method=method)
        assert posterior.labels[sample].tolist() == known[sample].tolist()
        assert posterior.marginals[sample].gather(1, known[sample][:, None]).min() > 1 - 1e-4
        right = posterior.labels == gold
        right[sample] = True
        assert float(right.float().mean()) > 0.9
    assert candidates.batch([sample]).counts[0] > posterior.prune().candidates.counts[sample] >= 1


@pytest.mark.parametrize("trust", [None, 1e-5, 0.2])
def test_no_number_of_neighbours_outweighs_a_known_label(trust: float | None) -> None:
    generator = torch.Generator().manual_seed(0)
    gold = torch.randint(0, 3, (14, 2), generator=generator)
    embeddings = 5 * torch.eye(3)[gold] + 0.1 * torch.randn(14, 2, 3, generator=generator)
    sample = int(((gold.sum(1) == 2) & (gold[:, 0] == 2)).nonzero()[0])
    known = torch.full_like(gold, -1)
    known[sample, 0] = 0  # it looks like a 2; 0 + 2 is a candidate, too
    posterior = infer(Candidates.from_rule(sum, gold.sum(1), 2, 3), embeddings, known=known, wrong=0, trust=trust)
    assert posterior.labels[sample].tolist() == [0, 2]
    assert float(posterior.marginals[sample, 0, 0]) == pytest.approx(1)
    assert posterior.prune(0.95).candidates.batch([sample]).labels.tolist()[0] == [0, 2]


@pytest.mark.parametrize("method", ["joint", "em"])
def test_a_known_label_that_no_candidate_has_is_never_pruned_to_nothing(method: str) -> None:
    candidates, embeddings, gold = clustered(20, slots=2, classes=3)
    sample = int((gold.sum(1) == 4).nonzero()[0])  # only 2 + 2
    known = torch.full_like(gold, -1)
    known[sample, 0] = 0
    for form in (candidates, Lattice.from_candidates(candidates)):
        posterior = infer(form, embeddings, known=known, wrong=0.1, method=method)
        assert float(posterior.suspicion[sample]) == 1
        assert posterior.prune(0.95).candidates.counts[sample] == 1


@pytest.mark.parametrize("targets", [[], [99, 99]])
def test_a_pool_without_any_candidate_is_refused(targets: list[int]) -> None:
    candidates = Candidates.from_rule(sum, [1, *targets], 2, 3, impossible="keep").batch(range(1, 1 + len(targets)))
    with pytest.raises(InputError, match=r"expected (a sample with candidates|the candidates of at least one sample)"):
        infer(candidates, torch.randn(len(targets), 2, 3))


@pytest.mark.parametrize("seed", range(6))
def test_the_energy_is_a_share_even_if_pairs_say_nothing(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    candidates = Candidates.from_rule(sum, torch.randint(0, 5, (6,), generator=generator), 2, 3)
    assert 0 <= infer(candidates, torch.randn(6, 2, 3, generator=generator)).energy <= 1


def test_known_labels_of_given_trust_are_those_of_the_worlds_that_have_them() -> None:
    candidates = Candidates.from_lists([[(0,), (1,)], [(0,), (1,)], [(0,), (1,)]], classes=2)
    graph = ProximityGraph.from_edges([0, 1], [1, 2])
    posterior = infer(candidates, graph, trust=0.1, known=torch.tensor([[1], [-1], [-1]]))
    assert posterior.marginals[:, 0, 1].tolist() == pytest.approx([1, 0.9, 0.82], abs=1e-4)


def test_a_known_label_that_contradicts_its_target_convicts_the_target() -> None:
    _, embeddings, gold = clustered(60, slots=2, classes=5, spread=0.1)
    targets = gold.sum(1)
    sample = int((targets == 8).nonzero()[0])  # 4 + 4
    targets[sample] = 0  # and nothing but 0 + 0 would do
    candidates = Candidates.from_rule(sum, targets, 2, 5)
    known = torch.full_like(gold, -1)
    known[sample, 1] = 4
    with pytest.raises(InputError, match=f"known labels, got none for sample {sample}"):
        infer(candidates, embeddings, known=known, wrong=0)
    posterior = infer(candidates, embeddings, known=known)
    assert float(posterior.suspicion[sample]) == 1
    assert posterior.labels[sample].tolist() == [4, 4]
    assert posterior.prune().candidates.counts[sample] == 1, "all candidates of a wrong target stay"
    assert int((posterior.suspicion > 1 / 2).sum()) == 1


@pytest.mark.parametrize(
    ("known", "message"),
    [
        (torch.zeros(2, 3).long(), r"shape \(3, 2\)"),
        (torch.zeros(3, 2), "whole numbers"),
        (torch.tensor([[0, 4], [-1, -1], [-1, -1]]), "got 4 in slot 1 of sample 0"),
        (torch.tensor([[0, -1], [-2, -1], [-1, -1]]), "got -2 in slot 0 of sample 1"),
        (torch.tensor([[-1, -1], [-1, -1], [-1, 2]]), "got 2 in slot 1 of sample 2"),  # it has one slot
        ([[0, -1], [-1, -1], [-1, 1]], "got 1 in slot 1 of sample 2"),
        ("gold", "known"),
    ],
)
def test_labels_that_cannot_be_known_are_refused(known: object, message: str) -> None:
    candidates = Candidates.from_lists([[(0, 3), (1, 2)], [(1, 1)], [(3,)]], classes=4)
    with pytest.raises(InputError, match=message):
        infer(candidates, NOWHERE, known=known)  # type: ignore[arg-type]
