"""Attacks on compiled formulas: extreme probabilities against brute force, damaged DIMACS, deep nesting, pickling."""

from __future__ import annotations

import copy
import itertools
import math
import multiprocessing
import pickle
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from clipper import Candidates, Lattice
from clipper.candidates import Formula, Proposition, all_of, any_of, has_label
from clipper.errors import BudgetError, ClipperError, FileError
from tests.hardening.attack import EFFORT, answered, check_all_answer, damaged, refused

pytest.importorskip("klay", reason="KLay is not installed (extra circuits)")

INF = math.inf


def propositions(rng: random.Random, slots: int, classes: int, depth: int = 3) -> Proposition:
    """A random proposition."""
    if not depth or rng.random() < 0.2:
        return has_label(rng.randrange(slots), rng.randrange(classes))
    parts = [propositions(rng, slots, classes, depth - 1) for _ in range(rng.randint(1, 3))]
    match rng.randrange(4):
        case 0:
            return ~parts[0]
        case 1:
            return all_of(parts)
        case 2:
            return any_of(parts)
        case _:
            return parts[0] >> parts[-1]


def random_formula(rng: random.Random) -> Formula:
    """Some samples of different lengths, each with a formula that something satisfies; restricted at times."""
    slots, classes = rng.randint(1, 4), rng.randint(2, 4)
    told, lengths = [], []
    while len(told) < 3:
        length = rng.randint(1, slots) if told else slots
        proposition = propositions(rng, length, classes)
        if any(proposition.evaluate(row) for row in itertools.product(range(classes), repeat=length)):
            told.append(proposition)
            lengths.append(length)
    formula = Formula.from_propositions(told, lengths, classes)
    if rng.random() < 0.3:
        allowed = (
            torch.rand(len(told) * slots, classes, generator=torch.Generator().manual_seed(rng.randrange(99))) < 0.8
        )
        first = formula.to_candidates().labels[formula.to_candidates().offsets[:-1]].long()
        allowed |= torch.nn.functional.one_hot(first.clamp(min=0).flatten(), classes).bool()
        formula = formula.restrict(allowed)
    return formula


LEVELS: tuple[tuple[float, ...], ...] = (
    (-1000.0, -1001.0, -999.5), (-INF, 0.0, -1.0), (-INF,), (-4e29, -1e30, -1.0), (-1e30, -1e30, -INF),
    (torch.finfo(torch.float64).min, -1e300, 0.0), (-1e5, -1e-5, -0.0), (-750.0, -745.0, -INF), (-1e307, -INF, -3.0),
    (-5.0, -0.1, -2.0), (-65504.0, -1.0), (700.0, 710.0, 1000.0, -1000.0),
)  # fmt: skip


def extreme(rng: random.Random, formula: Formula, dtype: torch.dtype = torch.float64) -> Tensor:
    """Log-probabilities of a few levels that lie far apart, or all far down."""
    levels = rng.choice(LEVELS)
    noise = rng.random() < 0.5
    numbers = [
        rng.choice(levels) + (rng.random() if noise else 0.0)
        for _ in range(formula.samples * formula.slots * formula.classes)
    ]
    return torch.tensor(numbers, dtype=torch.float64).view(formula.samples, formula.slots, formula.classes).to(dtype)


def scores(candidates: Candidates, log_probs: Tensor, sample: int) -> tuple[Tensor, list[float]]:
    """A sample's candidates, and their log-probabilities, summed without rounding."""
    rows = candidates.labels[candidates.sample == sample].long()
    return rows, [_score(row, log_probs[sample]) for row in rows.tolist()]


def _score(row: Sequence[int], logs: Tensor) -> float:
    parts = [float(logs[slot, value]) for slot, value in enumerate(row) if value >= 0]
    if -INF in parts:
        return -INF
    try:
        return math.fsum(parts)
    except OverflowError:
        return -INF


@pytest.mark.parametrize("part", range(3))
def test_the_best_candidates_are_the_best_however_improbable(part: int) -> None:
    rng = random.Random(part)
    for _ in range(12 * EFFORT):
        formula = random_formula(rng)
        candidates = formula.to_candidates()
        log_probs = extreme(rng, formula, rng.choice([torch.float64, torch.float32, torch.bfloat16]))
        k = rng.choice([1, 2, 3, 100])
        best = formula.top_k(log_probs, k)
        for i in range(formula.samples):
            rows, value = scores(candidates, log_probs.double(), i)
            found, given = scores(best, log_probs.double(), i)
            every = {tuple(row) for row in rows.tolist()}
            assert len({tuple(row) for row in found.tolist()} & every) == len(found) == min(k, len(rows))
            assert given == pytest.approx(sorted(value, reverse=True)[:k], rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("part", range(3))
def test_draws_are_candidates_and_those_that_are_possible_where_some_are(part: int) -> None:
    rng = random.Random(100 + part)
    for seed in range(8 * EFFORT):
        formula = random_formula(rng)
        candidates = formula.to_candidates()
        log_probs = extreme(rng, formula, rng.choice([torch.float64, torch.float32, torch.float16]))
        drawn = formula.draw(rng.choice([1, 3, 10]), seed, log_probs)
        assert drawn.samples == formula.samples
        for i in range(formula.samples):
            rows, value = scores(candidates, log_probs.double(), i)
            known = {tuple(row): score for row, score in zip(rows.tolist(), value, strict=True)}
            found = [tuple(row) for row in drawn.labels[drawn.sample == i].tolist()]
            assert found
            assert len(set(found)) == len(found)
            for row in found:
                assert row in known
                assert known[row] > -INF or max(value) == -INF


def test_where_the_classifier_rules_out_everything_draws_are_uniform() -> None:
    formula = Formula.from_cnf([[1, 2], [-2, 3]], samples=2000)  # four candidates of three bits
    drawn = formula.draw(1, 3, torch.full((2000, 3, 2), -INF)).labels.long() @ torch.tensor([4, 2, 1])
    assert torch.bincount(drawn, minlength=8)[[3, 4, 5, 7]].min() > 400
    mixed = torch.zeros(2000, 3, 2)
    mixed[::2] = -INF
    assert bool(formula.contains(formula.draw(1, 4, mixed).labels.long()).all())


@pytest.mark.parametrize("part", range(3))
def test_probabilities_marginals_and_entropies_agree_with_brute_force(part: int) -> None:
    rng = random.Random(200 + part)
    for _ in range(12 * EFFORT):
        formula = random_formula(rng)
        candidates = formula.to_candidates()
        log_probs = extreme(rng, formula).requires_grad_()
        log_probability, entropy = formula.log_probability(log_probs), formula.entropy(log_probs)
        marginals = formula.marginals(log_probs.detach())
        (slope,) = torch.autograd.grad(entropy.sum(), log_probs, retain_graph=True)
        assert not bool(slope.isnan().any())
        (share,) = torch.autograd.grad(log_probability[log_probability > -INF].sum(), log_probs)
        assert torch.allclose(share, marginals)
        used = formula.kind >= 0
        log_probability, entropy, log_probs = log_probability.detach(), entropy.detach(), log_probs.detach()
        for i in range(formula.samples):
            rows, value = scores(candidates, log_probs, i)
            top = max(value)
            if top == -INF:
                assert float(log_probability[i]) == -INF
                assert float(entropy[i]) == 0
                assert not bool(marginals[i].any())
                continue
            weight = torch.tensor([math.exp(v - top) for v in value], dtype=torch.float64)
            assert float(log_probability[i]) == pytest.approx(top + math.log(weight.sum()), rel=1e-12, abs=1e-9)
            assert torch.allclose(marginals[i].sum(1)[used[i]], torch.ones(1).double())
            if float(log_probs[i].clamp(min=-1e9)[log_probs[i] > -INF].abs().max()) > 1e8:
                assert 0 <= float(entropy[i]) <= math.log(len(rows)) + 1e-9
                continue  # so far down, sums of logarithms have lost their last digits
            posterior = weight / weight.sum()
            expected = torch.zeros_like(marginals[i])
            for row, p in zip(rows.tolist(), posterior.tolist(), strict=True):
                for slot, value_ in enumerate(row):
                    if value_ >= 0:
                        expected[slot, value_] += p
            assert torch.allclose(marginals[i], expected, atol=1e-8)
            own = -(posterior * posterior.clamp(min=1e-300).log()).sum()
            assert float(entropy[i]) == pytest.approx(float(own), abs=1e-7)


def test_the_attack_of_a_thousand_below_nothing() -> None:
    formula = Formula.from_cnf([[1, 2, 3], [-1, -2]], samples=3)
    log_probs = torch.full((3, 3, 2), -1000.0)
    log_probs[1] = 0
    log_probs[2] = -INF
    best = formula.top_k(log_probs, 100)
    assert best.counts == formula.counts
    assert formula.log_probability(log_probs)[0] == pytest.approx(-3000 + math.log(formula.counts[0]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_floating_type_is_answered_in_its_own(dtype: torch.dtype) -> None:
    formula = Formula.from_cnf([[1, 2]])
    log_probs = torch.tensor([[[-1.0, -2.0], [-0.5, -INF]]], dtype=dtype)
    assert formula.log_probability(log_probs).dtype == formula.marginals(log_probs).dtype == dtype
    assert formula.entropy(log_probs).dtype == formula.output_probabilities(log_probs).dtype == dtype
    assert formula.top_k(log_probs, 1).labels.tolist() == [[1, 0]]


def test_a_probability_that_is_no_number_stays_none_or_is_refused() -> None:
    formula = Formula.from_cnf([[1, 2]], samples=2)
    log_probs = torch.zeros(2, 2, 2)
    log_probs[0, 0, 1] = math.nan
    assert formula.log_probability(log_probs).isnan().tolist() == [True, False]
    refused(lambda: formula.top_k(log_probs, 1))
    refused(lambda: formula.draw(1, 0, log_probs))


@pytest.mark.parametrize("part", range(2))
def test_contains_is_that_of_the_list(part: int) -> None:
    rng = random.Random(300 + part)
    for _ in range(6 * EFFORT):
        formula = random_formula(rng)
        candidates = formula.to_candidates()
        for _ in range(30):
            numbers = [rng.choice([*range(formula.classes), -1, -2, formula.classes, 127, 128, 2**40, -(2**40)])
                       for _ in range(formula.samples * formula.slots)]  # fmt: skip
            gold = torch.tensor(numbers).view(formula.samples, formula.slots)
            if rng.random() < 0.7:
                gold = torch.where(candidates.first >= 0, candidates.first, gold)
            assert torch.equal(formula.contains(gold), candidates.contains(gold))


def test_the_support_is_exact_where_shares_underflow() -> None:
    slots = 1500
    rare = has_label(0, 1) >> all_of(has_label(slot, 0) for slot in range(1, slots))
    formula = Formula.from_propositions([rare], slots, 2)
    assert formula.counts == [2 ** (slots - 1) + 1]
    assert bool(formula.support.all())


def test_many_labels_neither_crash_nor_hang() -> None:
    formula = Formula.from_propositions([any_of(has_label(0, v) & has_label(1, v) for v in range(200))], 2, 300)
    assert formula.counts == [200]
    formula = Formula.from_propositions([all_of(~has_label(0, v) for v in range(299)) | has_label(1, 3)], 2, 300)
    assert formula.counts == [599]
    assert Formula.from_propositions([has_label(1, 3)], 2, 3000).counts == [3000]


def results(formula: Formula) -> list[Any]:
    """What a formula answers."""
    log_probs = torch.arange(formula.samples * formula.slots * formula.classes).double().cos()
    log_probs = log_probs.view(formula.samples, formula.slots, formula.classes).log_softmax(-1)
    return [
        formula.counts, formula.support.tolist(), formula.log_probability(log_probs).tolist(), repr(formula),
        formula.marginals(log_probs).tolist(), formula.entropy(log_probs).tolist(), formula.kind.tolist(),
        formula.top_k(log_probs, 3).labels.tolist(), formula.draw(2, 5, log_probs).labels.tolist(),
        formula.to_candidates().labels.tolist(),
    ]  # fmt: skip


def test_formulas_and_their_kin_can_be_pickled_and_copied() -> None:
    rng = random.Random(9)
    for _ in range(5):
        formula = random_formula(rng)
        expected = results(formula)
        for again in (pickle.loads(pickle.dumps(formula)), copy.deepcopy(formula), copy.copy(formula)):
            assert results(again) == expected
    proposition = propositions(rng, 3, 3)
    assert pickle.loads(pickle.dumps(proposition)) == proposition == copy.deepcopy(proposition)
    candidates = formula.to_candidates()
    assert torch.equal(pickle.loads(pickle.dumps(candidates)).labels, candidates.labels)
    large = Formula.from_cnf([[1, 2]], slots=80)
    assert pickle.loads(pickle.dumps(large)).counts == [3 * 2**78]


def step(state: int, value: int) -> int:
    return state + value


def same(state: int) -> int:
    return state


def test_lattices_of_functions_with_a_name_can_be_pickled() -> None:
    lattice = Lattice.from_rule(0, step, same, targets=[3, 5], slots=2, classes=4)
    again = pickle.loads(pickle.dumps(lattice))
    assert torch.equal(again.to_candidates().labels, lattice.to_candidates().labels)


def _in_another_process(given: bytes, pipe: Any) -> None:
    pipe.send(results(pickle.loads(given)))


def test_a_formula_answers_alike_in_a_spawned_process() -> None:
    formula = Formula.from_propositions([has_label(0, 1) | has_label(1, 2), ~has_label(0, 0)], [2, 1], 3)
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_in_another_process, args=(pickle.dumps(formula), there))
    process.start()
    try:
        assert here.poll(60)
        assert here.recv() == results(formula)
    finally:
        process.join(60)


WORDS = (b"0", b"-0", b"7", b"-3", b"1_0", b"+1", b"\xd9\xa1", b"1.0", b"1000000", b"9" * 20, b"", b"\n", b"p",
         b"%", b"c", b"\0")  # fmt: skip
DIMACS = b"c a small one\np cnf 5 6\n1 -2 0\n-1 3 4 0\n2 -5 0\n-3 -4 0 5 1\n0\n-2 -4 5 0\n"


def brute_count(text: bytes) -> int | None:
    """The models of a DIMACS text, read by the letter; None for what is no such text or too large to try."""
    try:
        lines = text.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n")
    except UnicodeDecodeError:
        return None
    lines = [line.strip() for line in lines]
    end = next((i for i, line in enumerate(lines) if line.startswith("%")), len(lines))
    lines = [line for line in lines[:end] if line and not line.startswith("c")]
    words = [line.split() for line in lines]
    if not words or words[0][:2] != ["p", "cnf"] or len(words[0]) != 4:
        return None
    numbers = [word for line in words[1:] for word in line]
    if not all(w.isascii() and w.removeprefix("-").isdigit() for w in [*numbers, *words[0][2:]]):
        return None
    literals = [int(word) for word in numbers]
    if literals and literals[-1] != 0:
        return None
    clauses: list[list[int]] = [[]]
    for literal in literals:
        if literal:
            clauses[-1].append(literal)
        else:
            clauses.append([])
    clauses.pop()
    told = [int(word) for word in words[0][2:]]
    mentioned = sorted({abs(literal) for clause in clauses for literal in clause})
    if min(told) < 0 or len(clauses) != told[1] or (mentioned and mentioned[-1] > told[0]) or len(mentioned) > 14:
        return None
    found = 0
    for world in itertools.product((False, True), repeat=len(mentioned)):
        true = dict(zip(mentioned, world, strict=True))
        found += all(any(true[abs(n)] == (n > 0) for n in clause) for clause in clauses)
    return found * 2 ** (told[0] - len(mentioned)) if told[0] <= 2000 else None


def test_damaged_dimacs_is_refused_or_read_by_the_letter(tmp_path: Path) -> None:
    path = tmp_path / "damaged.cnf"
    accepted = 0
    rng = random.Random(0)
    for i, content in enumerate(damaged(DIMACS, 150 * EFFORT, seed=1)):
        if i % 3 == 0:  # other words in the place of a word
            words = DIMACS.split(b" ")
            words[rng.randrange(len(words))] = rng.choice(WORDS)
            content = b" ".join(words)
        path.write_bytes(content)
        answer = answered(lambda: Formula.from_cnf(path))
        expected = brute_count(content)
        if isinstance(answer, ClipperError):
            assert not expected, content
            continue
        accepted += 1
        assert answer.counts == [expected], content
        try:
            text = content.decode()
        except UnicodeDecodeError:
            continue
        assert Formula.from_cnf(text).counts == [expected]
    assert accepted > 5


TEXTS = (
    "", " ", "p", "p cnf", "p cnf 1", "p cnf -1 1\n1 0", "p cnf 1 -1\n", "p cnf x 1", "p sat 2 1\n1 0",
    "p cnf 2 1 1\n1 0",
    "p cnf 2 1\n1 2", "p cnf 2 1\n1 0\n2", "p cnf 2 2\n1 0", "p cnf 1000000 0", "p cnf 1000000 1\n1 0",
    "p cnf 999999999999999999999999 1\n1 0", "p cnf 2 1\n99999999999999999999 0", f"p cnf 2 1\n{'9' * 5000} 0",
    "1 0\np cnf 1 1", "p cnf 1 1\np cnf 1 1\n1 0", "p cnf 1 1\n1 0\0", "p cnf 2 1\n1 1_0 0", "p cnf 2 1\n１ 0",
    "p cnf 1 1\n\ud800 0", "c only\n", "p cnf 2 2\n1 0\n-1 0", "p cnf 1 1\n0", "formula.cnf", "p cnf 0 0",
    "p cnf 2 1\n+1 0",
    "p cnf 2 1\nc 1 0\u2028 1 0",
)  # fmt: skip


@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_texts_that_are_no_dimacs_are_refused(number: int) -> None:
    refused(lambda: Formula.from_cnf(TEXTS[number]))


def test_dimacs_as_others_write_it() -> None:
    assert Formula.from_cnf("c x\r\np  cnf 3  2 \r\n 1 -3\r\n0 2 3 -1 0\r\n%\r\n0\r\n").counts == [5]
    assert Formula.from_cnf("p cnf 2 1\nc a line\u2028-1 0\n1 0\n").counts == [2]
    assert Formula.from_cnf("p cnf 2 0\n").counts == [4]


def test_files_that_are_no_dimacs(tmp_path: Path) -> None:
    (tmp_path / "bytes.cnf").write_bytes(b"p cnf 1 1\n\xff 0\n")
    for path in (tmp_path, tmp_path / "absent.cnf", tmp_path / "bytes.cnf", Path("a\0b"), Path("/dev/null")):
        with pytest.raises(FileError):
            Formula.from_cnf(path)


def deep(levels: int) -> Proposition:
    """A proposition inside a proposition, and so on."""
    whole = has_label(0, 1)
    for i in range(levels):
        whole = (~whole, whole & has_label(i % 3, 1), whole | has_label(i % 3, 0), whole >> has_label(1, 1))[i % 4]
    return whole


def test_propositions_may_be_deep() -> None:
    one, other = deep(10_000), deep(10_000)
    assert one == other
    assert hash(one) == hash(other)
    assert one != ~other
    assert len(repr(one)) < 200
    assert pickle.loads(pickle.dumps(one)) == copy.deepcopy(one) == one
    rows = [list(row) for row in itertools.product(range(2), repeat=3) if one.evaluate(row)]
    formula = Formula.from_propositions([one, other, has_label(0, 0)], 3, 2)
    assert formula.to_candidates().labels[: len(rows)].tolist() == rows


def test_propositions_may_share_parts() -> None:
    whole = has_label(0, 1) | has_label(1, 1)
    for _ in range(200):  # written out, longer than the universe is wide
        whole = whole & (whole | has_label(0, 0))
    assert Formula.from_propositions([whole], 2, 2).counts == [3]
    assert pickle.loads(pickle.dumps(whole)) == whole
    chain = has_label(0, 0)
    for i in range(3_000):
        chain = chain & ~has_label(1 + i % 2, 1)
    assert Formula.from_propositions([chain], 3, 3).counts == [4]


def wrong_propositions() -> list[tuple[str, Callable[[], Any]]]:
    right: dict[str, Any] = {"propositions": [has_label(0, 1), ~has_label(1, 0)], "slots": 2, "classes": 2}
    wrong: dict[str, list[Any]] = {
        "propositions": [None, 3, "has_label(0, 1)", [], [None], [3], ["x"], [True], [has_label], [[has_label(0, 1)]],
                         has_label(0, 1),
                         [has_label(0, 2)], [has_label(2, 0)], [has_label(0, 0) & ~has_label(0, 0)], [any_of([])], {},
                         torch.zeros(2), torch.tensor(0), [has_label(0, 10**30)], [has_label(10**30, 0)], iter([]),
                         [has_label(0, 1), None], b"x",
                         [all_of([])], {has_label(0, 1): 1}],
        "slots": [None, 0, -1, 1.5, True, "2", [2], [2, 2, 2], [2, 0], [2, None], [2, 1.5], [], 10**9, 10**30, [2,
                  10**30],
                  float("nan"), torch.tensor([2, 2]), np.array([2, 2]), torch.tensor(2), {}, [[2, 2]], (2, True)],
        "classes": [None, 0, -1, 1.5, "2", [], {}, {"a": 0}, {"a": 1.5}, {"a": 1, "b": 1}, 10**9, 10**30, True,
                    {"a": None},
                    float("inf"), [2]],
        "domains": [3, "01", [], [[0]], [[], [0]], [[0], [2]], [[0], [-1]], [[0], [1.5]], [[0], None], [[0], "1"], [0,
                    1],
                    [[0, 0], [1, 1]], [[True], [0]], np.ones((2, 2)), torch.ones(2, 1).long(), [[0], [10**30]], {}],
        "budget": [None, 0, -1, 1.5, True, "9", float("nan"), float("inf"), [9], 1, 3, 10**30],
    }  # fmt: skip
    return _calls(Formula.from_propositions, right, wrong)


def _calls(
    function: Callable[..., Any], right: dict[str, Any], wrong: dict[str, list[Any]]
) -> list[tuple[str, Callable[[], Any]]]:
    def call(options: dict[str, Any]) -> Callable[[], Any]:
        return lambda: function(**options)

    return [
        (f"{name} {i}: {type(value).__name__}", call({**right, name: value}))
        for name, values in wrong.items()
        for i, value in enumerate(values)
    ]


def wrong_cnfs() -> list[tuple[str, Callable[[], Any]]]:
    right: dict[str, Any] = {"cnf": [[1, -2]]}
    wrong: dict[str, list[Any]] = {
        "cnf": [None, 3, 1.5, b"p cnf 1 1\n1 0", [], [[]], [[0]], [1, 2], [[1.5]], [["1"]], [None], [[None]], {},
                [[True]],
                [[10**30]], [[10**9]], [[-(10**18)]], [[1], "2"], torch.tensor([[1, -2]]), torch.tensor(1),
                np.ones((2, 2)),
                np.array([[1, 2]]), iter([[1, 2]]), [iter([1, 2])], [[1], [-1]], {"a": 1}, [{1: 2}], Path("/"),
                          has_label(0, 1),
                [[float("nan")]]],
        "samples": [None, 0, -1, 1.5, True, "2", [2], 10**12, 10**30, float("nan"), np.int64(2), torch.tensor(2)],
        "variables": [3, "01", [], [(0, 1)], [(0, 1), (0,)], [(0, 1), 3], [(0, 1), (0, 1, 2)], [(0, 1), (0, -1)],
                      [(0, 1), (-1, 1)], [(0, 1), (0, 1.5)], [(0, 1), (0, 2)], [(0, 1), (10**30, 1)], {}, [(0, 1),
                      None],
                      [(0, 1), (0, 0), (5, 1)], np.array([[0, 1], [1, 1]]), [(0, 1), ("a", "b")], [(0, 1), (True, 1)]],
        "slots": [0, -1, 1, 1.5, True, "2", [2, 2], 10**9, 10**30, float("nan"), np.int64(3)],
        "classes": [None, 0, 1, 1.5, "2", {}, {"a": 1, "b": 1}, 10**9, 10**30],
        "domains": [3, [], [[0]], [[0], [1], [0]], "ab", [[5], [0]], [[0], [0]]],
        "budget": [None, 0, -1, 1.5, True, "9", 1, 10**30],
    }  # fmt: skip
    return _calls(Formula.from_cnf, right, wrong)


def wrong_methods() -> list[tuple[str, Callable[[], Any]]]:
    formula = Formula.from_propositions([has_label(0, 1) | has_label(1, 1), has_label(0, 1)], [2, 1], 2)
    logs = torch.zeros(2, 2, 2)
    bad_logs: list[Any] = [None, 3, [[0.0]], "x", logs[0], logs[:1], logs.long(), logs.bool(), logs[..., :1],
                           torch.zeros(2, 2, 2, 2),
                           logs.numpy(), logs * math.nan, logs + INF, logs - INF, torch.zeros(0, 2, 2),
                           logs.to_sparse()]  # fmt: skip
    calls: list[tuple[str, Callable[[], Any]]] = []
    for name in ("log_probability", "marginals", "entropy", "output_probabilities"):
        calls += _calls(getattr(formula, name), {}, {"log_probs": bad_logs})
    calls += _calls(formula.top_k, {"k": 1}, {"log_probs": bad_logs})
    calls += _calls(formula.draw, {"per_sample": 1}, {"log_probs": bad_logs})
    numbers: list[Any] = [None, 0, -1, 1.5, True, "1", [1], 10**9, 10**30, math.nan, INF, np.int64(2), torch.tensor(2)]
    calls += _calls(formula.top_k, {"log_probs": logs}, {"k": numbers})
    calls += _calls(formula.draw, {}, {"per_sample": numbers})
    calls += _calls(formula.draw, {"log_probs": logs}, {"per_sample": numbers})
    calls += _calls(formula.draw, {"per_sample": 1}, {"seed": [*numbers, 2**64, -(2**63), -(2**63) - 1]})
    calls += _calls(formula.to_candidates, {}, {"budget": numbers})
    golds: list[Any] = [None, 3, [[0, 1]], [[0, 1], [1, -1]], torch.zeros(2, 2), torch.zeros(2), torch.zeros(2,
                        3).long(),
                        np.zeros((2, 2), dtype=np.int64), torch.full((2, 2), 10**12), "x", torch.zeros(2, 2).bool(),
                        torch.full((2, 2), 200).to(torch.uint8)]  # fmt: skip
    calls += _calls(formula.contains, {}, {"gold": golds})
    masks: list[Any] = [None, 3, [[True, True]] * 4, torch.ones(4, 2), torch.ones(2, 2).bool(), torch.zeros(4,
                        2).bool(), "x",
                        np.ones((4, 2), dtype=bool), torch.ones(4, 3).bool(), torch.ones(4, 2).bool()]  # fmt: skip
    calls += _calls(formula.restrict, {}, {"allowed": masks})
    ids: list[Any] = [None, 3, [2], [-1], [0.5], "01", [], [True, False], torch.tensor([5]), torch.tensor([0, 0]),
                      np.array([1]),
                      [[0]], slice(0, 1), [10**30]]  # fmt: skip
    calls += _calls(formula.batch, {}, {"samples": ids})
    calls += _calls(formula.to, {}, {"device": [None, "nowhere", 3.5, "cpu", torch.device("cpu"), "cuda:99"]})
    return calls


@pytest.mark.parametrize("calls", [wrong_propositions, wrong_cnfs, wrong_methods])
def test_wrong_arguments_are_answered_in_words(calls: Callable[[], list[tuple[str, Callable[[], Any]]]]) -> None:
    answers, refusals = check_all_answer(calls())
    assert refusals >= 40
    assert answers >= 5


def test_no_samples_are_no_error() -> None:
    formula = Formula.from_cnf([[1, 2]], samples=3).batch([])
    logs = torch.zeros(0, 2, 2)
    assert formula.counts == []
    for found in (formula.top_k(logs, 1), formula.draw(2), formula.to_candidates()):
        assert len(found) == 0
    assert len(formula.log_probability(logs)) == len(formula.entropy(logs)) == len(formula.marginals(logs)) == 0
    assert formula.support.shape == (0, 2)


def test_propositions_are_combined_with_propositions_only() -> None:
    one = has_label(0, 1)
    for other in (3, None, "x", True, [one], torch.zeros(1), np.zeros(2), has_label):
        for combine in (lambda a, b: a & b, lambda a, b: a | b, lambda a, b: a >> b):
            refused(lambda: combine(one, other))  # noqa: B023
            if not isinstance(other, Tensor | np.ndarray):
                refused(lambda: combine(other, one))  # noqa: B023
        refused(lambda: all_of([one, other]))  # noqa: B023
        refused(lambda: any_of([one, other]))  # noqa: B023
    for wrong in (None, 3, one, "x"):
        refused(lambda: all_of(wrong))  # type: ignore[arg-type]  # noqa: B023
    for slot, value in ((0, 1.5), (1.5, 0), (True, 0), ("a", 0), (None, 0), (-1, 0), (0, -1), ([0], 0), (0, math.nan)):
        refused(lambda: has_label(slot, value))  # type: ignore[arg-type]  # noqa: B023
    for kind, parts in (
        ("xor", ()),
        ("not", ()),
        ("not", (one, one)),
        ("label", ()),
        ("and", (3,)),
        ("or", None),
        (3, ()),
    ):
        refused(lambda: Proposition(kind, parts))  # type: ignore[arg-type]  # noqa: B023
    assert has_label(np.int64(0), torch.tensor(1)) == one
    assert one != 3


def test_a_proposition_is_neither_true_nor_false() -> None:
    one, other = has_label(0, 1), has_label(1, 0)
    for ask in (
        lambda: one and other,
        lambda: one or other,
        lambda: not one,
        lambda: bool(one),
        lambda: 1 if one else 2,
    ):
        assert "&" in str(refused(ask))
    refused(lambda: one.evaluate([]))
    refused(lambda: one.evaluate(3))  # type: ignore[arg-type]
    assert one.evaluate(torch.tensor([1, 0]))  # type: ignore[arg-type]


def test_too_much_is_refused_before_it_is_tried() -> None:
    for call in (
        lambda: Formula.from_cnf("p cnf 1000000 1\n1 0"),
        lambda: Formula.from_cnf([[10**15]]),
        lambda: Formula.from_cnf([[1]], slots=10**7),
        lambda: Formula.from_cnf([[1, 2]], slots=60).to_candidates(),
        lambda: Formula.from_cnf([[1, 2]], slots=60).draw(10**9),
    ):
        with pytest.raises(BudgetError):
            call()
