"""The zoo's pools are what they say, its runner goes on where it stopped, and its promises count what they should."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from clipper.benchmarks import bench_zoo, datasets, zoo
from clipper.benchmarks.bench_zoo import ZooJob, quick_lines, read_rows, run_line, run_zoo
from clipper.benchmarks.datasets import missing_data
from clipper.benchmarks.statistics import auroc
from clipper.benchmarks.zoo import LINES, RULES, TROUBLES, lines_like, make_pool
from clipper.benchmarks.zoo_summary import promises, summarise
from clipper.errors import FileError, InputError
from clipper.executors import WorkerDiedError, run_jobs
from tests.launch import ignored

TINY = lines_like(["xor-3/digits/5", "xor-3/digits/10"])
MEANING = {
    "sum-2": sum,
    "sum-3": sum,
    "sum-4": sum,
    "max-3": max,
    "difference": lambda a: max(a) - min(a),
    "max-minus-min-3": lambda a: max(a) - min(a),
    "sum-3-mod-10": lambda a: sum(a) % 10,
    "product-3-mod-10": lambda a: a[0] * a[1] * a[2] % 10,
    "less": lambda a: a[0] < a[1],
    "equal": lambda a: a[0] == a[1],
    "xor-3": lambda a: a[0] ^ a[1] ^ a[2],
    "or-3": any,
    "and-3": all,
    "exactly-one-4": lambda a: a.count(1) == 1,
    "luhn-3": lambda a: (a[0] + [0, 2, 4, 6, 8, 1, 3, 5, 7, 9][a[1]] + a[2]) % 10,
    "shift-mod-5": lambda a: (a[0] - a[1]) % 5,
    "shift-3-mod-5": lambda a: (a[0] + a[1] - 2 * a[2]) % 5,
    "sum-3-is-0-mod-10": lambda a: sum(a) % 10,
    "proportions-4": lambda a: sorted(a),
    "proportions-4-8": lambda a: sorted(a),
}
"""The rules once more."""


def pool_of(line: zoo.Line, seed: int = 0) -> zoo.Pool:
    if missing_data(line.data) is not None:
        pytest.skip(missing_data(line.data))
    return make_pool(line, seed)


def test_there_are_at_most_80_lines_and_ten_seeds_give_200_pools_of_noise():
    assert len({line.name for line in LINES}) == len(LINES) <= 80
    assert 10 * sum(line.expects == "noise" for line in LINES) >= 200
    assert {line.rule for line in LINES} == set(RULES)
    assert {line.trouble for line in LINES} == set(TROUBLES)
    assert {line.data for line in LINES} - {"edges"} == set(zoo.DATA)


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.name)
def test_a_pool_is_what_its_line_says(line):
    pool, trouble = pool_of(line), TROUBLES[line.trouble]
    n, m = pool.gold.shape
    assert n == line.samples == pool.candidates.samples == len(pool.wrong)
    listed = (pool.gold < pool.candidates.classes).all(1)
    assert torch.equal(pool.candidates.contains(pool.gold), ~pool.wrong & listed)
    assert bool(listed.all()) == (not trouble.missing)
    assert int(pool.wrong.sum()) == round(trouble.wrong * n)
    assert (pool.known is not None) == bool(trouble.known)
    if pool.known is not None:
        given = pool.known >= 0
        assert int(given.sum()) == trouble.known
        assert torch.equal(pool.known[given], pool.gold[given])
    if trouble.triangles:
        assert pool.embeddings is None
        return
    assert pool.embeddings.shape[:2] == (n, m)
    assert pool.embeddings.dtype == torch.float
    used = pool.embeddings[pool.gold >= 0]
    assert bool(used.isfinite().all())
    if line.data != "iris":  # which has a flower twice
        assert len(used.unique(dim=0)) == len(used)


@pytest.mark.parametrize("rule", MEANING)
def test_the_candidates_are_those_that_the_rule_maps_to_the_gold_labels_target(rule):
    line = next(line for line in LINES if line.rule == rule and not line.trouble and line.data != "mnist")
    pool = make_pool(replace(line, samples=8), 3)
    domain, value = range(pool.candidates.classes), MEANING[rule]
    for sample, gold in enumerate(pool.gold.tolist()):
        gold = [label for label in gold if label >= 0]
        if len(domain) ** len(gold) > 20_000:
            continue
        wanted = [list(row) for row in itertools.product(domain, repeat=len(gold)) if value(list(row)) == value(gold)]
        rows = pool.candidates.labels[pool.candidates.sample == sample, : len(gold)]
        assert rows.tolist() == wanted


def test_fixed_targets_are_fixed_and_luhn_is_luhn():
    assert zoo._luhn(tuple(map(int, "79927398713"))) == 0
    for rule in ("luhn-3", "sum-3-is-0-mod-10"):
        pool = make_pool(*lines_like([f"{rule}/digits/100"]), 0)
        assert {MEANING[rule](row) for row in pool.gold.tolist()} == {0}
    pool = make_pool(*lines_like(["sum-3/noise/50/one-target"]), 0)
    assert len({sum(row) for row in pool.gold.tolist()}) == 1


def test_there_are_288_sudokus_and_each_is_one():
    grids = torch.tensor(zoo._sudokus()).view(-1, 4, 4)
    assert len(grids.flatten(1).unique(dim=0)) == 288
    boxes = grids.view(-1, 2, 2, 2, 2).transpose(2, 3).reshape(-1, 4, 4)
    for parts in (grids, grids.transpose(1, 2), boxes):
        assert bool((parts.sort(-1).values == torch.arange(4)).all())


def test_every_triangle_has_four_solutions_that_cut_no_edge():
    pool = make_pool(*lines_like(["xor-3/edges/90/triangles"]), 1)
    counts, offsets = pool.candidates.counts, pool.candidates.offsets.tolist()
    assert counts == [4] * 90
    for first in range(0, 90, 3):
        own = (pool.graph.source // 9) == first // 3
        source, target = pool.graph.source[own] - 3 * first, pool.graph.target[own] - 3 * first
        rows = [pool.candidates.labels[offsets[s] : offsets[s + 1]] for s in range(first, first + 3)]
        worlds = (torch.cat(world) for world in itertools.product(*rows))
        assert sum(bool((world[source] == world[target]).all()) for world in worlds) == 4


def test_seeds_determine_a_pool_and_differ():
    for name in (
        "sum-3/gaussians/100",
        "sum-3/digits/100/wrong-5",
        "proportions-4-8/wine/25",
        "sum-3/digits/100/known-10",
    ):
        first, again, other = (make_pool(*lines_like([name]), seed) for seed in (4, 4, 5))
        assert torch.equal(first.gold, again.gold)
        assert torch.equal(first.embeddings, again.embeddings)
        assert torch.equal(first.candidates.labels, again.candidates.labels)
        assert not torch.equal(first.gold, other.gold)


def test_about_one_nearest_neighbour_in_seven_errs_on_gaussians():
    errors = []
    for seed in range(5):
        pool = make_pool(*lines_like(["sum-3/gaussians/100"]), seed)
        vectors, labels = pool.embeddings.flatten(0, 1), pool.gold.view(-1)
        distance = torch.cdist(vectors, vectors)
        sample = torch.arange(len(labels)) // 3
        distance[sample[:, None] == sample] = torch.inf
        errors.append((labels[distance.argmin(1)] != labels).float().mean())
    assert float(torch.stack(errors).mean()) == pytest.approx(1 / 7, abs=0.03)


def test_imbalanced_labels_are_ten_to_one():
    labels = zoo.DATA["imbalanced"](torch.Generator().manual_seed(0), None).labels
    counts = labels.bincount()
    assert int(counts.max()) == 10 * int(counts.min())


def test_a_shared_background_ties_samples_of_equal_targets():
    pool = make_pool(*lines_like(["sum-3/digits/100/backgrounds"]), 0)
    vectors, target = pool.embeddings.flatten(0, 1), pool.gold.sum(1).repeat_interleave(3)
    distance = torch.cdist(vectors, vectors)
    sample = torch.arange(len(target)) // 3
    distance[sample[:, None] == sample] = torch.inf
    assert float((target[distance.argmin(1)] == target).float().mean()) > 0.8


def test_lines_without_their_data_say_why(monkeypatch):
    monkeypatch.setattr(datasets, "find", lambda *_: None)
    (line,) = lines_like(["sum-3/mnist/100"])
    assert "MNIST" in missing_data(line.data)
    with pytest.raises(FileError, match=r"sum-3/mnist/100: MNIST is not here"):
        make_pool(line, 0)


def test_an_unknown_line_is_refused():
    with pytest.raises(InputError, match="sum-9"):
        lines_like(["sum-9/digits/100"])


def test_quick_lines_have_every_rule_and_every_trouble_once():
    chosen = quick_lines(LINES)
    assert sorted(line.trouble or line.rule for line in chosen) == sorted([*RULES, *(t for t in TROUBLES if t)])


def test_a_row_says_how_much_is_right():
    row = run_line(*lines_like(["sum-3/digits/20/shuffled"]), 1)
    assert row["verdict"] in ("joint", "ambiguous", "unsettled", "uninformative")
    assert all(0 <= row[name] <= 1 for name in ("labels_right", "gold_kept", "candidates_kept"))
    assert row["settings"] == {
        "data": "digits", "rule": "sum-3", "samples": 20, "trouble": "shuffled", "expects": "noise", "mass": 0.95,
    }  # fmt: skip
    assert json.loads(json.dumps(row, allow_nan=False)) == row


def test_figures_of_a_posterior_are_compared_with_gold_labels(monkeypatch):
    (line,) = lines_like(["xor-3/digits/100/wrong-5"])
    pool = make_pool(line, 0)
    swap, same = SimpleNamespace(order=torch.tensor([1, 0])), SimpleNamespace(order=torch.tensor([0, 1]))
    posterior = SimpleNamespace(
        verdict="ambiguous",
        labels=1 - pool.gold,
        expected_accuracy=0.5,
        suspicion=pool.wrong.double(),
        namings=[same, swap],
        prune=lambda _: SimpleNamespace(gold_retained=lambda _: 0.9, retained=0.25),
    )
    asked = []

    def infer(*_, method, **__):
        asked.append(method)
        return posterior

    monkeypatch.setattr(bench_zoo, "infer", infer)
    row = run_line(line, 0)
    assert asked == ["joint", "em"]
    assert (row["labels_right"], row["best_naming_right"], row["gold_naming"], row["namings"]) == (0, 1, True, 2)
    assert (row["suspicion_auc"], row["gold_kept"], row["candidates_kept"]) == (1, 0.9, 0.25)
    assert row["em"]["gold_kept"] == 0.9


@pytest.mark.parametrize("seed", range(5))
def test_the_area_under_the_roc_curve_is_the_share_of_pairs_in_the_right_order(seed):
    generator = torch.Generator().manual_seed(seed)
    score, positive = torch.randint(4, (30,), generator=generator), torch.rand(30, generator=generator) < 0.3
    pairs = [
        (s, t) for s, p in zip(score, positive, strict=True) for t, q in zip(score, positive, strict=True) if p > q
    ]
    wanted = sum(1.0 if s > t else 0.5 if s == t else 0.0 for s, t in pairs) / len(pairs)
    assert auroc(score, positive) == pytest.approx(wanted)


def test_the_runner_goes_on_where_it_stopped(tmp_path, monkeypatch):
    file = tmp_path / "deep" / "zoo.jsonl"
    jobs = [ZooJob(line, seed) for seed in range(2) for line in TINY]
    first = run_zoo(jobs[:2], file, workers=1, progress=ignored)
    file.write_bytes(file.read_bytes() + b'{"format": "clipper zoo 1", "line": "cut o')  # a process was killed
    made = []
    monkeypatch.setattr(bench_zoo, "make_pool", lambda *job: made.append(job) or make_pool(*job))
    rows = run_zoo(jobs, file, workers=1, progress=ignored)
    assert [(row["line"], row["seed"]) for row in rows] == [(job.line.name, job.seed) for job in jobs]
    assert rows[:2] == first
    assert len(made) == 2
    assert len(read_rows(file)) == 4
    run_zoo(jobs[:1], file, workers=1, progress=ignored, again=True)
    assert len(made) == 3
    run_zoo([ZooJob(replace(TINY[0], samples=4), 0)], file, workers=1, progress=ignored)  # the line is another one now
    assert len(made) == 4


def test_a_pool_that_fails_is_noted_and_tried_again(tmp_path, monkeypatch):
    def broken(line, seed, data_root):
        if line == TINY[0]:
            raise RuntimeError("out of luck")
        return make_pool(line, seed, data_root)

    file, jobs = tmp_path / "zoo.jsonl", [ZooJob(line, 0) for line in TINY]
    with monkeypatch.context() as patch:
        patch.setattr(bench_zoo, "make_pool", broken)
        rows = run_zoo(jobs, file, workers=1, progress=ignored)
    assert [row["error"] for row in rows] == ["RuntimeError: out of luck", None]
    assert summarise(rows)[0]["failed"] == 1
    assert promises(rows)[0].held is False
    assert [row["error"] for row in run_zoo(jobs, file, workers=1, progress=ignored)] == [None, None]


def test_a_file_of_something_else_is_left_alone(tmp_path):
    file = tmp_path / "records.jsonl"
    file.write_text('{"format": "clipper ledger 2"}\n')
    with pytest.raises(FileError, match="line 1"):
        run_zoo([ZooJob(TINY[0], 0)], file, workers=1, progress=ignored)
    assert file.read_text() == '{"format": "clipper ledger 2"}\n'


def exit_at_three(job: int) -> int:
    if job == 3:
        raise SystemExit(7)
    assert torch.get_num_threads() == 1
    return job * job


@pytest.mark.slow
def test_a_worker_that_dies_takes_no_other_job_with_it():
    results = dict(run_jobs(exit_at_three, range(6), workers=2))
    died = results.pop(3)
    assert isinstance(died, WorkerDiedError)
    assert "exit code 7" in str(died)
    assert results == {job: job * job for job in (0, 1, 2, 4, 5)}


def row_of(name: str, seed: int = 0, **figures: object) -> dict:
    (line,) = lines_like([name])
    good = {
        "verdict": "joint",
        "labels_right": 1.0,
        "expected_accuracy": 0.99,
        "gold_kept": 1.0,
        "candidates_kept": 0.1,
    }
    rest = {"suspicion_auc": None, "gold_naming": True, "seconds": 1.0, "em": None, "error": None, "commit": None}
    return {"line": name, "seed": seed, "settings": bench_zoo._settings(line), **good, **rest, **figures}


def kept(rows: list[dict], text: str) -> bool | None:
    (promise,) = (promise for promise in promises(rows) if text in promise.text)
    return promise.held


def test_promises_are_kept_from_nine_pools_in_ten_on():
    name = "sum-3/digits/100"
    bad = {"labels_right": 0.94, "expected_accuracy": 0.94}
    nine = [row_of(name, seed, **(bad if seed == 0 else {})) for seed in range(10)]
    eight = [row_of(name, seed, **(bad if seed < 2 else {})) for seed in range(10)]
    assert kept(nine, "identified:") is True
    assert kept(eight, "identified:") is False
    assert kept([row_of(name, verdict="unsettled")], "identified:") is False
    assert kept([row_of("difference/digits/100")], "identified:") is None


def test_other_promises_count_what_they_say():
    difference = "difference/digits/100"
    assert kept([row_of(difference, verdict="ambiguous")], "ambiguous: nine") is True
    assert kept([row_of(difference, verdict="ambiguous", gold_naming=False)], "ambiguous: nine") is False
    assert kept([row_of(difference, candidates_kept=0.6)], "half of the candidates") is False
    noise = [row_of("xor-3/noise/20/skewed", seed, verdict="uninformative") for seed in range(49)]
    false_alarm = row_of("xor-3/noise/20/skewed", 49)
    assert kept([*noise, false_alarm], "without information") is True
    assert kept([*noise[:40], false_alarm], "without information") is False
    assert kept([row_of(difference, expected_accuracy=0.9)], "expected accuracy") is False
    low = [row_of(difference, 0, gold_kept=0.84), row_of(difference, 1)]
    assert kept(low, "every line keeps") is False
    assert kept(low, "every pool of 60") is False
    assert kept([row_of("sum-3/digits/20", gold_kept=0.84)], "every pool of 60") is None
    wrong = row_of("sum-3/digits/100/wrong-5", labels_right=0.96, suspicion_auc=0.98)
    assert kept([wrong], "5 % wrong targets on SUM-3: 96.5") is False
    assert kept([wrong], "AUC") is True


def test_a_summary_has_means_and_the_lowest():
    em = {"labels_right": 0.5, "gold_kept": 0.6, "seconds": 2.0}
    rows = [row_of("sum-3/digits/100", 0, em=em), row_of("sum-3/digits/100", 1, labels_right=0.8, verdict="unsettled")]
    (line,) = summarise(rows)
    assert line["verdicts"] == {"joint": 1, "ambiguous": 0, "unsettled": 1, "uninformative": 0}
    assert (line["labels_right"], line["labels_right_lowest"]) == (pytest.approx(0.9), 0.8)
    assert line["accuracy_gap"] == pytest.approx(0.1)
    assert line["em"] == em
