from __future__ import annotations

import json

import pytest
import torch
from typer.testing import CliRunner

from clipper import Candidates
from clipper.benchmarks.bench_loss import SumCircuit
from clipper.benchmarks.bench_prune import race_search
from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.datasets import train_and_test
from clipper.benchmarks.measurements import measurements
from clipper.benchmarks.registry import benchmark_named
from clipper.benchmarks.runs import engine_of, run
from clipper.benchmarks.tables import Ledger, gather
from clipper.benchmarks.tables.catalogue import ABLATION_TABLE
from clipper.benchmarks.timing import WARM_UP, compare_times
from clipper.cli.bench import bench
from clipper.engines import SemanticLoss
from clipper.errors import FileError, InputError
from clipper.report.bench_text import overhead, overhead_claims


def printed(*arguments: str) -> dict:
    result = CliRunner().invoke(bench, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return json.loads(result.stdout)


def test_bench_train_prints_the_share_of_every_setting():
    document = printed("train", "--data", "digits", "--rounds", "1", "--samples", "64", "--json")
    settings = {(row["objective"], row["encoder"]) for row in document["rows"]}
    assert settings >= {(objective, encoder) for objective in ("paper", "exact") for encoder in ("trainable", "frozen")}
    assert all(0 <= row["pruning_share"] <= 1 for row in document["rows"])


def test_bench_train_keeps_what_it_measured_and_pages_compare_it_with_the_paper(tmp_path):
    file = tmp_path / "bench.jsonl"
    command = [
        "train",
        "--data",
        "digits",
        "--rounds",
        "1",
        "--samples",
        "64",
        "--engine",
        "dolphin",
        "--out",
        str(file),
    ]
    printed(*command, "--batch", "32", "--batch", "64", "--json")
    rows, entries = measurements(file, "train"), gather(ABLATION_TABLE, Ledger(tmp_path / "records.jsonl"))
    assert [row["settings"]["batch"] for row in rows] == [32] * 5 + [64] * 5
    text = overhead(rows, entries)
    assert text.count("| dolphin, batch 32 | trainable |") == 2
    assert "19.1 ± 0.2 |" in text.split("| dolphin, batch 32 | trainable | paper |")[1].splitlines()[0]
    claims = overhead_claims(rows, entries)
    judged = [claim for claim in claims if claim.verdict != "not run"]
    assert {claim.kind for claim in claims} == {"overhead"}
    assert len(claims) == 18
    assert {claim.what for claim in judged} == {
        f"pruning, share of the time: dolphin + {encoder}, batch {batch}"
        for encoder in ("resnet18", "resnet152", "trainable")
        for batch in (32, 64)
    }
    share = next(row for row in rows if row["settings"]["objective"] == "paper")["figures"]["pruning_share"]
    trained = next(claim for claim in judged if "trainable, batch 32" in claim.what)
    assert trained.ours == f"{100 * share:.1f}"
    printed(*command, "--batch", "32", "--json")
    assert len(measurements(file, "train")) == len(rows)
    assert overhead([], entries) == "Not run."


def test_measurements_are_read_only_from_their_own_file(tmp_path):
    assert measurements(tmp_path / "none.jsonl", "train") == []
    other = tmp_path / "zoo.jsonl"
    other.write_text('{"format": "clipper zoo 1"}\n')
    with pytest.raises(FileError, match="no measurement"):
        measurements(other, "train")


def test_a_race_counts_no_warm_up_and_gives_every_call_an_input_of_its_own():
    seen, ticked = [], []
    times = compare_times(
        lambda _: (object, {"a": seen.append, "b": seen.append}), 4, best_of=2, tick=lambda: ticked.append(1)
    )
    assert times.rounds == 4
    assert len(ticked) == 4 + WARM_UP
    assert len(set(map(id, seen))) == 2 * 2 * len(ticked)


def test_bench_prune_says_how_it_compares_with_a_search_alone(monkeypatch, tmp_path):
    monkeypatch.setenv("CLIPPER_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = race_search(lambda *_: None, rounds=2)
    assert found["data"] == "digits, enlarged to 28 × 28 pixels"
    assert found["rounds"] == 2
    assert found["times_slower_than_product_and_top_k"] > 0


def test_bench_infer_prints_a_row_for_each_pool():
    document = printed("infer", "--data", "digits", "--slots", "2", "-n", "20", "-n", "40", "--rounds", "1", "--json")
    assert [row["samples"] for row in document["rows"]] == [20, 40]
    assert all(row["inference_seconds"] > 0 and row["round"]["times"] > 0 for row in document["rows"])
    assert all(0 <= row["right"] <= 1 and 0 <= row["gold_kept"] <= 1 for row in document["rows"])
    command = ["infer", "--data", "digits", "--rule", "max", "--slots", "2", "-n", "20", "--rounds", "1"]
    assert "MAX-2" in CliRunner().invoke(bench, command, catch_exceptions=False).stdout


def test_bench_infer_refuses_rules_that_nobody_knows():
    with pytest.raises(InputError, match="one of the rules"):
        CliRunner().invoke(bench, ["infer", "--rule", "product"], catch_exceptions=False)


def test_bench_loss_prints_every_task():
    pytest.importorskip("klay")
    document = printed("loss", "--rounds", "1", "--slots", "3", "--slots", "4", "--slots", "6", "--json")
    assert [row["task"] for row in document["rows"]] == ["SUM-3", "SUM-4", "SUM-6"]
    assert "candidates" in document["rows"][1]["milliseconds"]
    assert "candidates" not in document["rows"][2]["milliseconds"]
    assert set(document["rows"][2]["times_slower_than_lattice"]) == {"circuit, log", "circuit, real"}
    assert document["lattice_growth"]["square"] == 2.25


def test_bench_loss_shows_a_table():
    pytest.importorskip("klay")
    result = CliRunner().invoke(
        bench, ["loss", "--rounds", "1", "--slots", "4", "--slots", "6"], catch_exceptions=False
    )
    assert result.exit_code == 0
    assert "SUM-6" in result.stdout


@pytest.mark.parametrize("semiring", ["log", "real"])
@pytest.mark.parametrize("slots", [2, 3])
def test_the_circuit_over_partial_sums_is_the_semantic_loss(slots, semiring):
    pytest.importorskip("klay")
    generator = torch.Generator().manual_seed(slots)
    targets = torch.arange(9 * slots + 1)
    log_probs = torch.randn(len(targets), slots, 10, generator=generator).log_softmax(-1)
    expected = SemanticLoss()(log_probs, Candidates.from_rule(sum, targets, slots, 10))
    torch.testing.assert_close(SumCircuit(slots, semiring)(log_probs, targets), expected, rtol=1e-4, atol=1e-4)


def test_no_digit_is_both_learned_and_measured():
    train, test = train_and_test("digits")
    assert len(train) + len(test) == 1797
    seen = {row.numpy().tobytes() for row in train.pixels}
    assert sum(row.numpy().tobytes() in seen for row in test.pixels) <= 1  # scikit-learn's digits hold one twin


def test_a_target_is_its_own_place_among_the_outputs():
    for rule, highest in (("sum", 27), ("max", 9)):
        outputs = benchmark_named(rule)(RunConfig(rule=rule)).outputs
        assert outputs.samples == highest + 1


@pytest.mark.parametrize("engine", ["semantic", "dolphin", "scallop", "ised", "abl-sim", "sampled"])
def test_every_engine_can_be_named(engine):
    record = run(RunConfig(engine=engine, samples=8, slots=2, epochs=1))
    assert record.last.loss > 0


@pytest.mark.parametrize("network", ["DigitsMlp", "DigitsCnn"])
def test_the_ceiling_learns_the_gold_labels(network):
    record = run(RunConfig(network=network, objective="gold", epochs=15, lr=5e-3, evaluate_every=15))
    assert record.last.accuracy > 0.8


def test_an_option_that_an_engine_does_not_have_is_refused():
    config = RunConfig(engine_options={"magic": 1})
    benchmark = benchmark_named("sum")(config)
    with pytest.raises(InputError, match="magic"):
        engine_of(config, benchmark)


def test_a_joint_run_of_several_passes_reports_the_last_training() -> None:
    config = RunConfig(samples=40, slots=2, epochs=2, objective="joint", passes=2)
    record = run(config)
    assert len(record.epochs) == 2
    assert record.last.accuracy is not None
    assert RunConfig.from_dict(record.config).passes == 2


def test_passes_belong_to_joint_inference() -> None:
    with pytest.raises(InputError, match="one pass with the objective exact, got 2"):
        RunConfig(passes=2)
