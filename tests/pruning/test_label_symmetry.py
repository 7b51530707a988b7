"""Names: what the formulas cannot tell apart is not told apart, and what they can is corrected."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from clipper import Candidates, Lattice, Posterior, ProximityGraph, infer
from clipper.candidates.rules import MAX
from clipper.errors import InputError
from clipper.pruning.joint import InferenceSettings
from clipper.pruning.joint.naming import NamingEvidence, Namings, NamingSearch, anneal_names, enough_judges
from clipper.pruning.joint.pool import Pool, one_hot
from clipper.pruning.joint.search import _Search
from tests.pruning.pools import clustered, model_of

Rule = Callable[[Sequence[int]], int]
CONSTANTS = InferenceSettings()
NOWHERE = ProximityGraph.from_edges([], [])


def difference(labels: Sequence[int]) -> int:
    return abs(labels[0] - labels[1])


def shift(labels: Sequence[int]) -> int:
    return (labels[0] + 4 * labels[1]) % 5


def product_mod_10(labels: Sequence[int]) -> int:
    return labels[0] * labels[1] * labels[2] % 10


def sum_mod_10(labels: Sequence[int]) -> int:
    return sum(labels) % 10


def equal(labels: Sequence[int]) -> int:
    return int(labels[0] == labels[1])


def points(gold: Tensor, spread: float = 0.1) -> Tensor:
    """A vector for each instance, near those of its class, `(n, m, 8)`."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(int(gold.max()) + 1, 8, generator=generator)
    return centres[gold] + spread * torch.randn(*gold.shape, 8, generator=generator)


def pool_of(rule: Rule, samples: int, slots: int, classes: int, seed: int = 0) -> tuple[Candidates, Tensor, Tensor]:
    """Candidates, embeddings and gold labels of clean clusters."""
    gold = torch.randint(0, classes, (samples, slots), generator=torch.Generator().manual_seed(seed))
    return Candidates.from_rule(rule, [rule(row) for row in gold.tolist()], slots, classes), points(gold), gold


def names_that_fit(rule: Rule, gold: Tensor, classes: int) -> set[tuple[int, ...]]:
    """All permutations of the labels under which every sample keeps its target, label by label, by backtracking."""
    rows = sorted({tuple(row) for row in gold.tolist()}, key=max)
    fits: set[tuple[int, ...]] = set()

    def extend(names: list[int]) -> None:
        if any(rule([names[y] for y in row]) != rule(row) for row in rows if max(row) == len(names) - 1):
            return
        if len(names) == classes:
            fits.add(tuple(names))
            return
        for name in set(range(classes)) - set(names):
            extend([*names, name])

    extend([])
    return fits


def names_of(pool: Pool, heard: Tensor, settings: InferenceSettings = CONSTANTS) -> NamingSearch:
    """A search for names by what instances hear, `(n*m, c)`; each has the label that it hears."""
    return NamingSearch(pool, heard, heard.argmax(1), settings, torch.Generator().manual_seed(0))


def nearly_sure(labels: Tensor, classes: int) -> Tensor:
    """What instances hear that err once in a hundred times, `(n*m, c)`."""
    return torch.where(one_hot(labels.view(-1, 1), classes)[:, :, 0] > 0, 0.99, 0.01 / (classes - 1)).log()


def gold_names(posterior: Posterior[Candidates], gold: Tensor) -> list[tuple[int, ...]]:
    """What each gold label is called under each of the namings; fails if a group has no name of its own."""
    found: list[tuple[int, ...]] = []
    for naming in posterior.namings:
        named = naming.order[posterior.labels]
        called = [named[gold == label].unique().tolist() for label in range(len(naming.order))]
        assert all(len(names) == 1 for names in called)
        found.append(tuple(names[0] for names in called))
    return found


@pytest.mark.parametrize(
    ("rule", "samples", "slots", "classes", "ways"),
    [
        (difference, 60, 2, 5, 2),
        (difference, 100, 2, 10, 2),
        (shift, 60, 2, 5, 5),
        pytest.param(product_mod_10, 100, 3, 10, 1, marks=pytest.mark.slow),
        pytest.param(sum_mod_10, 100, 3, 10, 1, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("seed", range(2))
def test_namings_are_all_permutations_that_the_formulas_allow(
    rule: Rule, samples: int, slots: int, classes: int, ways: int, seed: int
) -> None:
    candidates, embeddings, gold = pool_of(rule, samples, slots, classes, seed)
    expected = names_that_fit(rule, gold, classes)
    assert len(expected) == ways
    posterior = infer(candidates, embeddings)
    assert posterior.verdict == ("joint" if ways == 1 else "ambiguous")
    found = gold_names(posterior, gold)
    assert len(found) == ways
    assert set(found) == expected
    assert [naming.weight for naming in posterior.namings] == pytest.approx([1 / ways] * ways, abs=0.02)
    assert posterior.namings[0].order.tolist() == list(range(classes)), "the first are the names of `labels`"
    kept = posterior.prune()
    assert all(bool(kept.candidates.contains(torch.tensor(names)[gold]).all()) for names in expected)
    assert ways == classes or kept.retained < 0.5
    worth = posterior.marginals.gather(2, gold[..., None])
    assert float(worth.min()) > 1 / ways - 0.05


def test_the_oracle_of_names_knows_the_usual_ones() -> None:
    every = torch.cartesian_prod(torch.arange(4), torch.arange(4))
    assert names_that_fit(difference, every, 4) == {(0, 1, 2, 3), (3, 2, 1, 0)}
    assert len(names_that_fit(equal, every, 4)) == 24


@pytest.mark.slow
def test_where_any_name_will_do_nothing_is_pruned_on_names() -> None:
    candidates, embeddings, gold = pool_of(equal, 80, 2, 10)
    posterior = infer(candidates, embeddings)
    assert posterior.verdict == "ambiguous"
    assert not posterior.mixture.namings.exhaustive
    assert not bool(posterior.mixture.namings.orbit.any()), "all labels may change names with label 0"
    assert posterior.prune().discarded == 0
    assert {len(posterior.labels[gold == label].unique()) for label in range(10)} == {1}, "the groups are right"


def test_no_candidate_goes_because_of_a_name_that_nobody_knows() -> None:
    candidates = Candidates.from_rule(sum, targets=[2, 3], slots=2, classes=3)  # 02 11 20, 12 21
    posterior = infer(candidates, NOWHERE, starts=1)
    sure = torch.tensor([[9.0, 0, 0], [0, 0, 9], [0, 9, 0], [0, 0, 9]])[:, :, None]  # 02 and 12
    orders = torch.tensor([[0, 1, 2], [2, 1, 0]])
    names = Namings(orders, torch.tensor([9.0, 0.0]), exhaustive=True, orbit=torch.tensor([0, 1, 0]))
    for exhaustive, kept in ((True, [[0, 2], [1, 2]]), (False, [[0, 2], [2, 0], [1, 2]])):  # 0 and 2 may be each other
        mixture = replace(posterior.mixture, heard=sure, weight=torch.ones(2, 1), solved={})
        mixture = replace(mixture, namings=replace(names, exhaustive=exhaustive))
        pruning = replace(posterior, mixture=mixture, verdict="ambiguous").prune(0.9)
        assert pruning.candidates.labels.tolist() == kept


@pytest.mark.slow
def test_one_known_label_settles_a_reversal() -> None:
    candidates, embeddings, gold = pool_of(difference, 100, 2, 10)
    open_names = infer(candidates, embeddings)
    asked = int(open_names.ask(1))
    sample, slot = divmod(asked, 2)
    known = torch.full_like(gold, -1)
    known[sample, slot] = gold[sample, slot]
    posterior = infer(candidates, embeddings, known=known)
    assert posterior.verdict == "joint"
    assert len(posterior.namings) == 1
    assert torch.equal(posterior.labels, gold)
    assert posterior.prune().gold_retained(gold) == 1
    known[sample, slot] = 9 - gold[sample, slot]  # the other way round
    assert torch.equal(infer(candidates, embeddings, known=known).labels, 9 - gold)


@pytest.mark.slow
def test_inference_goes_on_from_where_it_stood(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates, embeddings, gold = pool_of(difference, 60, 2, 10)
    before = infer(candidates, embeddings)
    assert before.verdict == "ambiguous"
    known = torch.full_like(gold, -1)
    known.view(-1)[before.ask(1)] = gold.view(-1)[before.ask(1)]
    anew = infer(candidates, embeddings, known=known)
    monkeypatch.setattr(_Search, "clusters", None)  # no groups are sought again
    after = infer(candidates, embeddings, known=known, previous=before)
    assert after.verdict == anew.verdict == "joint"
    assert torch.equal(after.labels, gold)
    assert torch.equal(after.labels, anew.labels)
    assert after.expected_accuracy == pytest.approx(anew.expected_accuracy, abs=0.01)
    assert before.found is not None
    assert after.found is not None
    assert torch.equal(after.found.fold, before.found.fold), "what is hidden stays hidden"
    with pytest.raises(InputError, match="same samples and slots"):
        infer(candidates.batch(range(5)), embeddings[:5], previous=before)
    with pytest.raises(InputError, match="expected previous to be a Posterior"):
        infer(candidates, embeddings, previous=gold)


def test_what_to_ask_is_what_tells_the_namings_apart() -> None:
    gold = torch.randint(0, 5, (60, 2), generator=torch.Generator().manual_seed(0))
    candidates = Candidates.from_rule(difference, [difference(row) for row in gold.tolist()], 2, 5)
    posterior = infer(candidates, points(gold))
    assert posterior.verdict == "ambiguous"
    asked = posterior.ask(3)
    assert len(set(asked.tolist())) == 3
    assert int(gold.flatten()[asked[0]]) != 2, "a 2 is a 2 under both namings"
    assert len(posterior.ask(1000)) == 120


def total_evidence(candidates: Candidates, field: Tensor) -> float:
    """log Π over samples of Σ over candidates of exp(Σ of the field `(n*m, c)` at its labels), one by one."""
    said = field.view(candidates.samples, candidates.slots, -1)
    total = 0.0
    for i in range(candidates.samples):
        rows = candidates.labels[candidates.sample == i].tolist()
        total += float(sum(sum(said[i, j, label] for j, label in enumerate(row)).exp() for row in rows).log())
    return total


@pytest.mark.parametrize("classes", [3, 4])
def test_names_are_as_probable_as_they_make_the_formulas(classes: int) -> None:
    candidates, _, gold = clustered(6, slots=2, classes=classes, seed=2)
    pool, heard = model_of(candidates, NOWHERE), 0.3 * one_hot(gold.view(-1, 1), classes)[:, :, 0]
    orders = list(itertools.permutations(range(classes)))
    expected = torch.tensor([total_evidence(candidates, heard[:, list(order)]) for order in orders])
    judge = NamingEvidence(pool, heard, CONSTANTS)
    torch.testing.assert_close(judge(torch.tensor(orders)), expected.double(), atol=1e-4, rtol=0)
    namings = names_of(pool, heard).everywhere()
    likely = expected >= expected.max() - CONSTANTS.improbable
    assert namings.exhaustive
    assert {tuple(o) for o in namings.orders.tolist()} == {o for o, ok in zip(orders, likely, strict=True) if ok}
    assert namings.orders[0].tolist() == list(orders[int(expected.argmax())])
    for order, odds in zip(namings.orders, namings.evidence.tolist(), strict=True):
        each = [
            total_evidence(candidates.batch([i]), heard[2 * i : 2 * i + 2, order])
            - total_evidence(candidates.batch([i]), heard[2 * i : 2 * i + 2, namings.orders[0]])
            for i in range(6)
        ]
        assert odds == pytest.approx(min(0.0, sum(each) - min(0.0, *each)), abs=1e-4), "all but the loudest"


def test_names_that_no_formula_tells_apart_are_equally_probable() -> None:
    rows = [list(pair) for pair in itertools.permutations(range(3), 2)]
    candidates = Candidates.from_lists([rows] * 30, classes=3)  # all that is known: the two differ
    heard = 3 * one_hot(torch.tensor(rows * 5).view(-1, 1), 3)[:, :, 0]
    namings = names_of(model_of(candidates, NOWHERE), heard).everywhere()
    assert namings.weight.tolist() == pytest.approx([1 / 6] * 6)
    assert {tuple(order) for order in namings.orders.tolist()} == set(itertools.permutations(range(3)))


def test_samples_that_are_left_out_have_no_say() -> None:
    candidates, _, gold = clustered(6, slots=2, classes=3, seed=2)
    pool, heard = model_of(candidates, NOWHERE), one_hot(gold.view(-1, 1), 3)[:, :, 0]
    hidden = torch.arange(6) < 2
    orders = torch.tensor(list(itertools.permutations(range(3))))
    rest = NamingEvidence(model_of(candidates.batch(range(2, 6)), NOWHERE), heard[4:], CONSTANTS)(orders)
    torch.testing.assert_close(NamingEvidence(pool, heard, CONSTANTS, hidden)(orders), rest)
    disbelieved = replace(pool, disbelieved=hidden)
    torch.testing.assert_close(NamingEvidence(disbelieved, heard, CONSTANTS)(orders), rest)


def test_exchanged_names_are_put_right() -> None:
    candidates, _, gold = clustered(60, slots=2, classes=5)
    wrong = torch.tensor([0, 3, 2, 1, 4])[gold]
    heard = 3 * one_hot(wrong.view(-1, 1), 5)[:, :, 0]
    namings = names_of(model_of(candidates, NOWHERE), heard).everywhere()
    assert torch.equal(heard[:, namings.orders[0]].argmax(1), gold.flatten())
    assert float(namings.weight[0]) > 0.99


def test_a_wrong_target_can_refute_no_names_by_itself() -> None:
    candidates, _, gold = clustered(6, slots=2, classes=3, seed=2)
    heard = (0.1 + one_hot(gold.view(-1, 1), 3)[:, :, 0]).log_softmax(1)
    pool, prior, wrong = model_of(candidates, NOWHERE), torch.linspace(0.5, 3, 6), 0.2
    orders = torch.tensor(list(itertools.permutations(range(3))))
    evidence = NamingEvidence(pool, heard, CONSTANTS, wrong=wrong, prior=prior)(orders)
    for order, total in zip(orders, evidence.tolist(), strict=True):
        chances = [math.exp(total_evidence(candidates.batch([i]), heard[2 * i : 2 * i + 2, order])) for i in range(6)]
        mixed = [(1 - wrong) * p + wrong * math.exp(-float(q)) for p, q in zip(chances, prior, strict=True)]
        assert total == pytest.approx(sum(map(math.log, mixed)), abs=1e-4)


def test_one_sample_of_a_large_pool_decides_what_no_other_can() -> None:
    """Of 600 samples, the 301st alone tells 0 from 1; walkers ask fewer than all."""
    either, only = [(0, 1), (1, 0)], [(0, 0)]
    candidates = Candidates.from_lists([only if i == 301 else either for i in range(600)], classes=2)
    gold = torch.tensor([[0, 1]] * 600)
    gold[301] = 0
    heard = (0.01 + one_hot(gold.view(-1, 1), 2)[:, :, 0]).log_softmax(1)
    few = replace(CONSTANTS, memory=1 << 12)
    assert enough_judges(model_of(candidates, NOWHERE), few) < 300
    for order in ([0, 1], [1, 0]):
        namings = names_of(model_of(candidates, NOWHERE), heard[:, order], few).everywhere()
        assert namings.orders[0].tolist() == order


@pytest.mark.parametrize("known", [False, True])
def test_one_misread_sample_does_not_decide_the_names_but_a_known_label_does(known: bool) -> None:
    """Differences tell no number from its mirror image. The last sample, 0 and 2, does, and it is heard as 4 and 2."""
    gold = torch.randint(0, 5, (60, 2), generator=torch.Generator().manual_seed(0))
    lists = [[(a, b) for a in range(5) for b in range(5) if abs(a - b) == abs(c - d)] for c, d in gold.tolist()]
    candidates = Candidates.from_lists([*lists, [(0, b) for b in range(5)]], classes=5)
    pool = model_of(candidates, NOWHERE)
    heard = nearly_sure(torch.cat([gold, torch.tensor([[4, 2]])]), 5)
    last = torch.arange(61) == 60
    names = NamingSearch(
        pool, heard, heard.argmax(1), CONSTANTS, torch.Generator().manual_seed(0), known=last if known else None
    )
    namings = names.everywhere()
    assert namings.orders.tolist() == [[4, 3, 2, 1, 0], [0, 1, 2, 3, 4]]
    assert float(namings.weight[0]) > 0.9 if known else namings.weight.tolist() == pytest.approx([0.5, 0.5], abs=0.01)


def test_names_are_open_where_two_classes_may_share_one() -> None:
    """3 and 5 have one name, 4, and the others fit. Nobody is called 0. Without the merger, all have other names."""
    pairs = [(0, 6), (2, 8), (4, 6), (4, 8), (1, 5), (3, 7), (1, 9), (3, 9)]  # all that occur
    merged = torch.tensor([5, 2, 7, 4, 9, 4, 1, 6, 3, 8])
    gold = torch.tensor(pairs * 12)
    candidates = Candidates.from_rule(sum, gold.sum(1), 2, 10)
    assert bool(candidates.contains(merged[gold]).all())
    heard = nearly_sure(merged[gold], 10)
    namings = names_of(model_of(candidates, NOWHERE), heard).everywhere()
    assert not namings.exhaustive
    assert namings.orbit.tolist() == [0] * 10


def test_a_label_that_nobody_has_leaves_names_alone_that_formulas_settle() -> None:
    gold = torch.randint(0, 9, (100, 3), generator=torch.Generator().manual_seed(0))
    candidates = Candidates.from_rule(sum, gold.sum(1), 3, 10)
    heard = nearly_sure(gold, 10)
    namings = names_of(model_of(candidates, NOWHERE), heard).everywhere()
    assert namings.exhaustive
    assert namings.orders.tolist() == [list(range(10))]


def test_names_that_change_places_one_after_another_are_one_orbit() -> None:
    """0, 1 and 2 may be anything; 3 and 4 are known."""
    rows = [list(pair) for pair in itertools.permutations(range(3), 2)]
    candidates = Candidates.from_lists([rows] * 10 + [[(3, 4)]] * 10, classes=5)
    gold = torch.tensor(rows[:2] * 5 + [[3, 4]] * 10)
    heard = (0.01 + one_hot(gold.view(-1, 1), 5)[:, :, 0]).log_softmax(1)
    names = names_of(model_of(candidates, NOWHERE), heard)
    namings = names.around(torch.arange(5))
    assert namings.orbit.tolist() == [0, 0, 0, 3, 4]
    assert {tuple(order[:3]) for order in namings.orders.tolist()} == set(itertools.permutations(range(3)))
    assert not namings.exhaustive, "nobody looked further than exchanges"


def test_a_walk_finds_a_single_good_order_among_many() -> None:
    candidates, _, gold = clustered(100, slots=3, classes=10)
    order = torch.randperm(10, generator=torch.Generator().manual_seed(5))
    heard = 3 * one_hot(order[gold].view(-1, 1), 10)[:, :, 0]
    judge = NamingEvidence(model_of(candidates, NOWHERE), heard, CONSTANTS)
    generator = torch.Generator().manual_seed(0)
    orders, evidence = anneal_names(judge, [range(10)], CONSTANTS.walkers, generator, CONSTANTS.exchanges)
    assert orders[int(evidence.argmax())].tolist() == order.tolist()
    torch.testing.assert_close(evidence, judge(orders))


def test_names_are_exchanged_within_their_kind_only() -> None:
    kinds = [range(2), range(2, 5)]
    gold = torch.tensor([[0, 3], [1, 2], [0, 4]] * 5)
    rows = [[tuple(row)] for row in gold.tolist()]
    candidates = Candidates.from_lists(rows, classes=5)
    judge = NamingEvidence(model_of(candidates, NOWHERE), one_hot(gold.view(-1, 1), 5)[:, :, 0], CONSTANTS)
    orders, _ = anneal_names(judge, kinds, 16, torch.Generator().manual_seed(0), 1)
    assert len({tuple(order) for order in orders.tolist()}) > 1
    assert orders.sort(1).values.tolist() == [list(range(5))] * 16
    assert orders[:, :2].max() < 2


def maxima(samples: int = 60, classes: int = 4) -> Tensor:
    """Gold labels `(n, 3)` whose maxima never tell 0 from 1: each sample has both, or neither."""
    generator = torch.Generator().manual_seed(3)
    gold = torch.randint(2, classes, (samples, 3), generator=generator)
    gold[: samples // 2, :2] = torch.tensor([0, 1])
    gold[: samples // 8, 2] = torch.arange(samples // 8) % 2
    return gold


@pytest.mark.parametrize("listed", [True, False])
def test_the_posterior_keeps_both_ways_where_nobody_can_tell(listed: bool) -> None:
    gold = maxima()
    sets = Candidates.from_rule(max, gold.amax(1), 3, 4) if listed else Lattice.from_rule(*MAX, gold.amax(1), 3, 4)
    posterior = infer(sets, ProximityGraph.from_embeddings(points(gold), k=8))
    assert posterior.verdict == "ambiguous"
    exchanged = torch.tensor([1, 0, 2, 3])[gold]
    kept = posterior.prune(0.95)
    assert kept.candidates.contains(gold).double().mean() >= 0.95
    assert kept.candidates.contains(exchanged).double().mean() >= 0.95
    assert posterior.marginals[gold < 2][:, :2].sub(0.5).abs().max() < 0.2
    assert (posterior.marginals.sum(2) - 1).abs().max() < 1e-4


def test_what_a_classifier_knows_beforehand_settles_names() -> None:
    gold = maxima()
    candidates, graph = (
        Candidates.from_rule(max, gold.amax(1), 3, 4),
        ProximityGraph.from_embeddings(points(gold), k=8),
    )
    said = (2 * torch.eye(4)[gold]).log_softmax(-1)
    posterior = infer(candidates, graph, log_probs=said)
    assert posterior.verdict == "joint"
    assert torch.equal(posterior.labels, gold)


def test_two_classes_do_not_share_a_name_although_every_formula_would_allow_it() -> None:
    gold = maxima(classes=5)
    posterior = infer(Candidates.from_rule(max, gold.amax(1), 3, 5), ProximityGraph.from_embeddings(points(gold), k=8))
    assert {len(posterior.labels[gold == label].unique()) for label in range(5)} == {1}
    assert len(posterior.labels.unique()) == 5
