"""decode against brute force: every candidate's probability, one by one."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import clipper
from clipper import Candidates, CandidateSet, Lattice, rules
from clipper.candidates import Formula, has_label
from clipper.candidates.rules import SUM
from clipper.errors import InputError
from clipper.labelling import Decoded, decode
from tests.machines import log_probs_for, restricted

Ranked = list[tuple[float, tuple[int, ...]]]


def ranked_by_hand(candidates: Candidates, log_probs: Tensor) -> list[Ranked]:
    """Each sample's candidates with their probability given the formula, the most probable first."""
    found = []
    for sample, logs in enumerate(log_probs.tolist()):
        rows = {tuple(row) for row in candidates.labels[candidates.sample == sample].tolist()}
        weight = {
            row: math.prod(math.exp(logs[slot][label]) for slot, label in enumerate(row) if label >= 0) for row in rows
        }
        total = sum(weight.values())
        found.append(sorted(((value / total, row) for row, value in weight.items()), reverse=True))
    return found


def assert_decoded(found: Decoded, expected: list[Ranked]) -> None:
    """Labels whose probability is the highest, then the second highest; equals may come in either order."""
    for i, rows in enumerate(expected):
        probability = {row: share for share, row in rows}
        best, second = (tuple(labels[i].tolist()) for labels in (found.labels, found.runner_up))
        assert probability[best] == pytest.approx(rows[0][0])
        assert float(found.probability[i]) == pytest.approx(rows[0][0])
        if len(rows) == 1:
            assert set(second) == {-1}
            assert float(found.runner_up_probability[i]) == 0
        else:
            assert best != second
            assert probability[second] == pytest.approx(rows[1][0])
            assert float(found.runner_up_probability[i]) == pytest.approx(rows[1][0])


@given(restricted(), st.integers(0, 99), st.floats(0, 1))
def test_lists_and_lattices_decode_as_brute_force_does(
    pair: tuple[Lattice, Candidates], seed: int, threshold: float
) -> None:
    lattice, candidates = pair
    log_probs = log_probs_for(lattice, seed)
    expected = ranked_by_hand(candidates, log_probs)
    for form in (lattice, candidates):
        found = decode(log_probs, form, threshold=threshold)
        assert_decoded(found, expected)
        sure = [rows[0][0] for rows in expected]
        clear = torch.tensor([abs(share - threshold) > 1e-9 for share in sure])
        assert torch.equal(found.abstained[clear], torch.tensor([share < threshold for share in sure])[clear])


def test_formulas_decode_as_their_list() -> None:
    pytest.importorskip("klay", reason="KLay is not installed (extra circuits)")
    propositions = [has_label(0, 1) | has_label(1, 2), has_label(0, 0) >> has_label(2, 0), has_label(1, 1)]
    formula = Formula.from_propositions(propositions, [2, 3, 2], 3)
    log_probs = log_probs_for(formula, 0)
    assert_decoded(decode(log_probs, formula), ranked_by_hand(formula.to_candidates(), log_probs))


def test_long_sums_decode_without_a_list() -> None:
    gold = torch.randint(10, (4, 30), generator=torch.Generator().manual_seed(0))
    lattice = Lattice.from_rule(*SUM, gold.sum(1).tolist(), 30, 10)
    sure = torch.full((4, 30, 10), 0.01).scatter(2, gold[..., None], 0.91)
    wrong = sure.clone()
    wrong[:, 0] = 0.1  # the classifier cannot read the first digit; the sum knows it
    for log_probs in (sure.log(), wrong.log()):
        assert torch.equal(decode(log_probs, lattice).labels, gold)


def test_probabilities_stay_right_where_a_classifier_is_nearly_certain() -> None:
    candidates = Candidates.from_lists([[(0, 0), (1, 1)]], classes=2)
    log_probs = torch.tensor([[[-400.0, -402.0], [-300.0, -300.0]]])
    found = decode(log_probs, candidates)
    assert found.probability.dtype == torch.float32
    assert float(found.probability) == pytest.approx(1 / (1 + math.exp(-2)))


def test_what_a_classifier_rules_out_altogether_has_probability_zero() -> None:
    candidates = Candidates.from_lists([[(0,), (1,)], [(0,), (1,)]], classes=3)
    log_probs = torch.tensor([[[0.0, 0.0, 1.0]], [[0.0, 0.5, 0.5]]]).log()
    found = decode(log_probs, candidates, threshold=0.1)
    assert found.probability.tolist() == [0, 1]
    assert found.runner_up_probability.tolist() == [0, 0]
    assert found.labels[1].tolist() == [1]
    assert found.abstained.tolist() == [True, False]


@pytest.mark.parametrize("budget", [0, 1_000])
def test_a_sample_that_nothing_satisfies_is_abstained_from(budget: int) -> None:
    candidates = rules.total().candidates([3, 99], 2, 10, budget=budget, impossible="keep")
    found = decode(log_probs_for(candidates, 0), candidates)
    assert found.labels[1].tolist() == found.runner_up[1].tolist() == [-1, -1]
    assert float(found.probability[1]) == 0
    assert found.abstained.tolist() == [False, True]


@pytest.mark.parametrize("form", ["listed", "lattice"])
def test_without_a_target_the_most_probable_output_is_found(form: str) -> None:
    log_probs = log_probs_for(Candidates.from_rule(sum, [0] * 5, 2, 4), 1)
    outputs: CandidateSet = Candidates.from_rule(sum, range(7), 2, 4)
    if form == "lattice":
        outputs = Lattice.from_rule(*SUM, range(7), 2, 4)
    found = clipper.decode(log_probs, outputs=outputs, threshold=0.3)
    assert found.output is not None
    assert found.output_probability is not None
    for i, logs in enumerate(log_probs.exp().tolist()):
        share = [0.0] * 7
        for a, b in itertools.product(range(4), repeat=2):
            share[a + b] += logs[0][a] * logs[1][b]
        assert found.output_probability[i].tolist() == pytest.approx(share)
        assert int(found.output[i]) == max(range(7), key=share.__getitem__)
        assert bool(found.abstained[i]) == (max(share) < 0.3)
    listed = Candidates.from_rule(sum, found.output.tolist(), 2, 4)
    assert_decoded(found, ranked_by_hand(listed, log_probs))


def test_arrays_and_lists_and_a_batch_of_none_will_do() -> None:
    candidates = Candidates.from_rule(sum, [3, 4], 2, 4)
    log_probs = log_probs_for(candidates, 0)
    expected = decode(log_probs, candidates).labels
    assert torch.equal(decode(log_probs.numpy(), candidates).labels, expected)
    assert torch.equal(decode(log_probs.tolist(), candidates).labels, expected)
    assert decode(log_probs[:0], candidates.batch([])).labels.shape == (0, 2)
    found = decode(log_probs[:0], outputs=candidates)
    assert found.labels.shape == (0, 2)


def test_nothing_here_needs_a_gradient() -> None:
    candidates = Candidates.from_rule(sum, [3, 4], 2, 4)
    found = decode(log_probs_for(candidates, 0).requires_grad_(), candidates)
    assert not found.probability.requires_grad


def test_what_does_not_fit_is_refused() -> None:
    candidates = Candidates.from_rule(sum, [3, 4], 2, 4)
    log_probs = log_probs_for(candidates, 0)
    broken = log_probs.clone()
    broken[0, 0, 0] = torch.nan
    for arguments, options, message in (
        ((log_probs,), {}, "expected either candidates"),
        ((log_probs, candidates), {"outputs": candidates}, "expected either candidates"),
        ((log_probs[:1], candidates), {}, "shape"),
        ((broken, candidates), {}, "NaN"),
        ((broken,), {"outputs": candidates}, "NaN"),
        ((log_probs, candidates), {"threshold": 1.5}, "threshold"),
        ((log_probs, "sum"), {}, "expected candidates to be Candidates"),
        ((log_probs + 3,), {"outputs": candidates}, "log_softmax"),
        ((log_probs,), {"outputs": candidates.batch([])}, "the candidates of at least one output, got none"),
        ((log_probs,), {"outputs": rules.total().lattice([3], 2, 4).batch([])}, "at least one output, got none"),
    ):
        with pytest.raises(InputError, match=message):
            decode(*arguments, **options)
