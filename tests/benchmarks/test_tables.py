"""Tables: which runs they are made of, what is noted of them, and what is made of the notes."""

from __future__ import annotations

import json
import multiprocessing
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clipper.benchmarks.config import OWN_NETWORKS, RunConfig
from clipper.benchmarks.probe import digest
from clipper.benchmarks.settings import run_key, settings_of
from clipper.benchmarks.tables import (
    TABLES,
    CellResult,
    Ledger,
    Selection,
    deviations,
    gather,
    grid,
    layout,
    summarise,
    table_named,
)
from clipper.benchmarks.tables.catalogue import (
    ABLATION_TABLE,
    ADDITION_TABLE,
    CONFOUNDS_TABLE,
    JOINT_TABLE,
    SCALE_TABLE,
    SUM_TABLE,
)
from clipper.benchmarks.tables.grid import run_cells
from clipper.errors import FileError, InputError
from clipper.report.claims import claims_of, distinct, in_short, reproduced, verdict, verdict_of
from clipper.report.table_text import above_ceiling
from clipper.training import EpochMetrics, Record
from clipper.training.environment import versions

ROOT = Path(__file__).parents[2]
NEED_DATA = ("hwf", "joint", "confounds", "draws", "vqar", "formulas")
TINY = Selection(engines=("semantic",), variants=("none", "exact"), columns=("SUM-3, n=100",), quick=True, epochs=2)


def record_of(config: RunConfig, accuracy: float = 0.5) -> Record:
    epochs = [EpochMetrics(1, 2.5, None, 0.8, 0.9, 1.0, 0.02), EpochMetrics(2, 2.0, accuracy, 0.6, 1.0, 1.0, 0.04)]
    return Record(config, epochs, {"torch": "2"})


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_every_place_of_every_table_is_a_run_that_can_be_configured(table):
    places = list(table.places())
    run = [place for place in places if not place.row.source]
    assert len({repr(place.config) for place in run}) == len(run)
    known = {(place.row.name, place.column.name) for place in places}
    assert set(table.published) <= known
    measured = {*table.measures, "pruning_share"}  # which `clipper bench train` measures
    assert {measure for figures in table.published.values() for measure in figures} <= measured


def test_every_published_figure_belongs_to_a_table():
    assert set(layout._published()) <= set(TABLES)


def test_rows_of_other_systems_show_their_figures_and_are_never_run(tmp_path):
    ledger = Ledger(tmp_path / "records.jsonl")
    ledger.add(record_of(replace(ADDITION_TABLE.columns[3].base, seed=0)))
    assert not [cell for cell in ADDITION_TABLE.cells() if cell.row.source]
    for entries in (summarise(ADDITION_TABLE, ledger), gather(ADDITION_TABLE, ledger)):
        theirs = [entry for entry in entries if entry.place.row.name == "PLIA" and "N=15" in entry.place.column.name]
        assert [(entry.records, entry.published) for entry in theirs] == [((), {"sums": (79.0, 0.7)})]


def test_the_ablation_shares_its_runs_with_the_first_table():
    shared = {repr(cell.config) for cell in SUM_TABLE.cells()} & {repr(cell.config) for cell in ABLATION_TABLE.cells()}
    assert len(shared) >= 10 * 2 * 4  # ten seeds, two engines: none, frozen, trainable, exact


def test_the_paper_trains_the_same_baseline_in_tables_1_and_5():
    assert (
        SUM_TABLE.published["dolphin", "MNIST SUM-3, n=100"]["accuracy"]
        == ABLATION_TABLE.published["dolphin", "batch 64"]["accuracy"]
    )


def test_every_row_of_a_column_has_a_seed_before_any_has_two():
    cells = list(Selection(seeds=2).of(SUM_TABLE).cells())
    first = [cell for cell in cells if cell.column == cells[0].column]
    turn = [cell.seed - cell.row.first_seed for cell in first]
    rows = sum(place.column == cells[0].column for place in SUM_TABLE.places())
    assert turn == [0] * rows + [1] * rows


def test_a_selection_names_what_it_does_not_know():
    with pytest.raises(InputError, match=r"semantic.*got \['sematic'\]"):
        Selection(engines=("sematic",)).of(SUM_TABLE)
    with pytest.raises(InputError, match="MNIST SUM-3, n=100"):
        Selection(columns=("SUM-5",)).of(SUM_TABLE)
    with pytest.raises(InputError, match="one of the tables sum, scale"):
        table_named("sums")


@pytest.mark.parametrize(
    "table",
    [table for table in TABLES.values() if table.name not in NEED_DATA],
    ids=lambda table: table.name,
)
def test_quick_tables_need_no_data_and_few_images(table):
    for place in Selection(quick=True).of(table).places():
        assert place.config.data in ("digits", "clips", "primitives", "biopsies")  # all come with Clipper
        reused = place.config.rule == "long-sum"  # whose sums show images again and again
        assert place.config.data == "clips" or reused or place.config.samples * place.config.slots <= 1_198
        assert place.config.encoder in ("trainable", *OWN_NETWORKS, "pixels", "outlines", "middle")
        assert place.config.augment != "flip-shift"  # a mirrored digit is none


def test_a_quick_table_of_scenes_says_that_they_are_generated():
    quick = Selection(quick=True).of(table_named("vqar", "no-such-folder"))
    assert [column.name for column in quick.columns] == [
        f"generated scenes, {names} names, n=100" for names in (50, 100)
    ]
    assert {place.config.data for place in quick.places()} == {"scenes"}
    assert "generated" in quick.title


def test_a_ledger_gives_back_what_was_noted(tmp_path):
    ledger = Ledger(tmp_path / "deep" / "records.jsonl")
    records = [record_of(RunConfig(seed=seed, engine_options={"k": 3})) for seed in range(3)]
    for record in records:
        ledger.add(record)
    again = Ledger(ledger.path)
    assert [again.find(record.config) for record in records] == records
    assert again.find(RunConfig(seed=0)) is None


@pytest.mark.parametrize("cut", [1, 20, 300])
def test_a_line_that_was_cut_off_costs_that_run_and_no_other(tmp_path, cut):
    ledger = Ledger(tmp_path / "records.jsonl")
    for seed in range(3):
        ledger.add(record_of(RunConfig(seed=seed)))
    ledger.path.write_bytes(ledger.path.read_bytes()[:-cut])
    after = Ledger(ledger.path)
    assert [after.find(RunConfig(seed=seed)) is not None for seed in range(3)] == [True, True, cut == 1]
    after.add(record_of(RunConfig(seed=2), accuracy=0.7))
    last = Ledger(ledger.path)
    assert len(last) == 3
    assert last.find(RunConfig(seed=2)).last.accuracy == 0.7


def test_a_run_that_was_run_again_supersedes_its_record_which_stays_in_the_file(tmp_path):
    ledger = Ledger(tmp_path / "records.jsonl")
    config = RunConfig(objective="joint", seed=100)
    for spelling, accuracy in ((config, 0.5), (replace(config, k=8, when="once"), 0.7)):
        ledger.add(record_of(spelling, accuracy))
    again = Ledger(ledger.path)
    assert len(again) == len(ledger) == 1
    assert again.find(config).last.accuracy == 0.7
    assert [record.last.accuracy for record in again.history(config)] == [0.5, 0.7]
    assert again.history(replace(config, seed=101)) == []


def test_a_line_of_an_earlier_format_is_of_an_unknown_commit():
    ledger = Ledger(ROOT / "results" / "records.jsonl")
    old = next(record for record in ledger.records() if record.config["objective"] == "joint")
    assert old.commit == "unknown"
    assert old.settings == {}
    assert json.loads(run_key(old.config))["k"] == 8  # which its line calls k: 1


@pytest.mark.slow
def test_cells_that_are_asked_for_again_are_run_again(tmp_path):
    table, ledger = replace(TINY, seeds=1, variants=("none",)).of(SUM_TABLE), Ledger(tmp_path / "records.jsonl")
    for again in (False, False, True):
        assert run_cells(table.cells(), ledger, jobs=1, again=again) == []
    (cell,) = table.cells()
    first, second = ledger.history(cell.config)
    assert first.epochs[-1].loss == pytest.approx(second.epochs[-1].loss)
    assert first.commit == second.commit != ""


def test_a_line_that_is_no_record_is_named(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps({"format": "something else"}) + "\n")
    with pytest.raises(FileError, match=r"line 1 of .*records\.jsonl"):
        Ledger(path)


def _add_many(path, first):
    ledger = Ledger(path)
    for seed in range(first, first + 40):
        ledger.add(record_of(RunConfig(seed=seed)))


@pytest.mark.slow
def test_several_processes_may_write_to_one_ledger(tmp_path):
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_add_many, args=(tmp_path / "records.jsonl", first)) for first in (0, 1000, 2000)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(Ledger(tmp_path / "records.jsonl")) == 120


@pytest.mark.slow
def test_cells_run_in_processes_and_only_once(tmp_path):
    table, ledger, told = replace(TINY, seeds=2).of(SUM_TABLE), Ledger(tmp_path / "records.jsonl"), []
    assert run_cells(table.cells(), ledger, jobs=2, tick=lambda: told.append(1)) == []
    assert len(told) == len(ledger) == 4
    lines = ledger.path.read_bytes()
    run_cells(table.cells(), Ledger(ledger.path), jobs=2, tick=lambda: told.append(1))
    assert len(told) == 4
    assert ledger.path.read_bytes() == lines


@pytest.mark.slow
def test_a_cell_that_cannot_run_is_named_and_stops_no_other(tmp_path):
    table = replace(TINY, seeds=1).of(SUM_TABLE)
    broken = replace(table, rows=(table.rows[0], replace(table.rows[1], changes={"network": "NoSuchNet"})))
    ledger = Ledger(tmp_path / "records.jsonl")
    (failed,) = run_cells(broken.cells(), ledger, jobs=1)
    assert "NoSuchNet" in failed
    assert len(ledger) == 1


@pytest.mark.slow
def test_a_process_that_dies_costs_its_cell_alone(tmp_path):
    def kill_the_first() -> None:
        while not multiprocessing.active_children():
            time.sleep(0.01)
        multiprocessing.active_children()[0].kill()

    table, ledger = replace(TINY, seeds=1).of(SUM_TABLE), Ledger(tmp_path / "records.jsonl")
    killer = threading.Thread(target=kill_the_first)
    killer.start()
    (failed,) = run_cells(table.cells(), ledger, jobs=1)
    killer.join()
    assert "exit code -9" in failed
    assert len(ledger) == 1


@pytest.mark.slow
def test_a_long_run_keeps_a_checkpoint_until_it_is_noted(tmp_path, monkeypatch):
    table = replace(TINY, seeds=1, variants=("none",)).of(SUM_TABLE)
    (cell,) = table.cells()
    monkeypatch.setattr(grid, "LONG", 1)
    assert grid._run((cell.config, False, tmp_path)).config == cell.config.as_dict()
    assert grid.checkpoint_of(cell.config, tmp_path).exists()
    ledger = Ledger(tmp_path / "records.jsonl")
    assert run_cells([cell], ledger, jobs=1) == []
    assert not grid.checkpoint_of(cell.config, tmp_path).exists()


def test_figures_are_the_last_epochs_accuracy_and_means_of_what_was_kept(tmp_path):
    table, ledger = replace(TINY, seeds=2).of(SUM_TABLE), Ledger(tmp_path / "records.jsonl")
    for cell, accuracy in zip(table.cells(), (0.2, 0.4, 0.3, 0.8), strict=True):
        ledger.add(record_of(cell.config, accuracy))
    none, exact = summarise(table, ledger)
    assert none.values("accuracy") == [20.0, 30.0]
    assert none.values("retained") == []
    assert exact.values("accuracy") == [40.0, 80.0]
    assert exact.values("retained") == pytest.approx([70.0, 70.0])
    assert exact.values("gold") == pytest.approx([95.0, 95.0])
    assert exact.as_dict(["accuracy"])["measures"]["accuracy"]["mean"] == 60


def test_gathering_prefers_more_seeds_and_says_what_differs(tmp_path):
    ledger = Ledger(tmp_path / "records.jsonl")
    column = next(column for column in SUM_TABLE.columns if column.name == "MNIST SUM-3, all")
    place = next(
        place for place in SUM_TABLE.places() if place.column == column and place.row.name == "dolphin + frozen"
    )
    for seed, epochs, encoder in ((0, 9, "pixels"), (0, 3, "pixels"), (1, 3, "pixels"), (0, 3, "trainable")):
        ledger.add(record_of(replace(place.config, seed=seed, epochs=epochs, encoder=encoder)))
    (entry,) = [entry for entry in gather(SUM_TABLE, ledger) if entry.records and entry.place == place]
    assert [(record.config["seed"], record.config["epochs"]) for record in entry.records] == [(0, 3), (1, 3)]
    assert deviations(entry) == "3 epochs, pixels"


def test_the_fine_tuned_rows_are_those_of_photographs_and_differ_in_their_labels_only():
    selected = Selection(engines=("CifarMobileNetV2",)).of(SUM_TABLE)
    assert {place.column.base.data for place in selected.places()} == {"cifar10"}
    assert sum(cell.column.name == "CIFAR-10 SUM-3, n=10K" for cell in selected.cells()) == 2 * 3  # three seeds
    joint, gold = [place.config for place in selected.places()][:2]
    assert (joint.objective, joint.encoder, gold.objective) == ("joint", "mobilenet-v2", "gold")
    assert replace(joint, objective="gold", encoder=gold.encoder, metric=gold.metric) == gold
    for place in selected.places():
        assert place.config.samples * place.config.slots <= 50_000  # no image is drawn twice


def test_a_run_of_one_column_never_stands_in_another(tmp_path):
    ledger = Ledger(tmp_path / "records.jsonl")
    place = next(place for place in SUM_TABLE.places() if place.column.name == "CIFAR-10 SUM-3, n=10K")
    ledger.add(record_of(place.config))
    assert [entry.place for entry in gather(SUM_TABLE, ledger) if entry.records] == [place]


def test_few_samples_never_stand_for_other_few_samples(tmp_path):
    ledger = Ledger(tmp_path / "records.jsonl")
    ledger.add(record_of(replace(next(SUM_TABLE.places()).config, samples=50)))
    assert not any(entry.records for entry in gather(SUM_TABLE, ledger))


def test_an_old_ceiling_is_shown_only_beside_runs_with_its_seeds(tmp_path):
    ledger = Ledger(tmp_path / "records.jsonl")
    places = {place.row.name: place for place in SUM_TABLE.places() if place.column.name == "MNIST SUM-3, n=100"}
    joint, gold = places["semantic + joint"], places["gold labels"]
    ledger.add(record_of(replace(joint.config, seed=10)))
    ledger.add(record_of(replace(gold.config, seed=0)))
    assert [entry.place for entry in gather(SUM_TABLE, ledger) if entry.records] == [joint]
    ledger.add(record_of(replace(gold.config, seed=10)))
    assert [entry.place for entry in gather(SUM_TABLE, ledger) if entry.records] == [joint, gold]


def fresh(config: RunConfig, accuracy: float) -> Record:
    """A record that says by which method it was made, with other packages, so that nobody can compare the method."""
    return replace(record_of(config, accuracy), probe={"draws": "0"})


def entries_with(
    gains: list[float], first: int = 100, base: float = 0.3, variants: tuple[str, ...] = ("none", "trainable")
) -> list[CellResult]:
    """The first row at `base`, the others better by the gains, in points."""
    table = Selection(engines=("dolphin",), variants=variants, columns=("MNIST SUM-3, n=100",)).of(SUM_TABLE)
    none, *pruned = table.places()
    return [
        CellResult(
            place,
            tuple(
                fresh(replace(place, seed=seed).config, base + (gain / 100 if place in pruned else 0))
                for seed, gain in enumerate(gains, first)
            ),
            SUM_TABLE.published.get((place.row.name, place.column.name), {}),
        )
        for place in (none, *pruned)
    ]


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ([17.0, 16.0, 18.0, 17.5], "reproduces"),
        ([30.0, -10.0, 20.0, 10.0], "undecided"),
        ([1.0, -1.0, 2.0, -2.0], "not seen"),
        ([5.0, 6.0, 5.5, 5.2], "smaller"),
        ([-5.0, -6.0, -5.5, -5.2], "the opposite"),
    ],
)
def test_a_claim_is_judged_by_the_interval_of_the_paired_gains(gains, verdict):
    (claim,) = claims_of(entries_with(gains))
    assert claim.what == "dolphin + trainable over dolphin, MNIST SUM-3, n=100"
    assert claim.paper == "+17.2"
    assert claim.verdict == verdict
    (old,) = claims_of(entries_with(gains, first=0))
    assert old.verdict == f"old runs: {verdict}"


def test_one_seed_supports_no_claim():
    (claim,) = claims_of(entries_with([17.0]))
    assert claim.verdict == "too few seeds"
    assert verdict_of(10.0, 20.0, 30.0) == "larger"
    (_, pruned) = entries_with([17.0])
    (share,) = claims_of([replace(pruned, published={"retained": (100.0, 1.0)})])
    assert share.verdict == "too few seeds"


@pytest.mark.parametrize(
    ("base", "gains", "verdict"),
    [
        (0.9, [9.0, 9.8, 9.5, 9.9], "no room here"),  # 90 + 17.2 > 100, and the interval reaches 10
        (0.9, [1.0, -1.0, 2.0, -2.0], "another baseline here"),  # there is room, and pruning does not use it
        (0.2, [17.0, 16.0, 18.0, 17.5], "another baseline here"),  # the paper's is 43.3
        (0.6, [17.0, 16.0, 18.0, 17.5], "reproduces"),
    ],
)
def test_a_gain_over_a_very_different_baseline_is_not_judged(base, gains, verdict):
    (claim,) = claims_of(entries_with(gains, base=base))
    assert claim.verdict == verdict


def test_runs_without_common_seeds_are_not_called_missing():
    none, pruned = entries_with([17.0, 16.0])
    _, other = entries_with([17.0, 16.0], first=110)
    assert [claim.verdict for claim in claims_of([none, other])] == ["no common seeds"]
    assert [claim.verdict for claim in claims_of([none, replace(pruned, records=())])] == ["not run"]


def test_a_gain_that_reproduces_is_shown_beside_the_random_control():
    none, pruned, random = entries_with([17.0, 16.0, 18.0], variants=("none", "trainable", "random"))
    assert "+0.0 [+0.0, +0.0], so neighbours are not shown to be the cause" in reproduced(
        claims_of([none, pruned, random])
    )
    (worse,) = entries_with([1.0, 1.5, 1.0], variants=("none", "random"))[1:]
    said = reproduced(claims_of([none, pruned, worse]))
    assert "over the control that discards at random +15.8 [" in said
    assert "not shown" not in said
    assert reproduced(claims_of(entries_with([1.0, -1.0, 1.0]))) == ""


def test_rows_that_differ_in_more_than_the_objective_are_compared_with_a_remark(tmp_path):
    ledger = Ledger(tmp_path / "records.jsonl")
    rows = [row for row in CONFOUNDS_TABLE.rows if row.variant in ("paper", "exact")]
    table = replace(CONFOUNDS_TABLE, rows=tuple(rows), columns=CONFOUNDS_TABLE.columns[:1], seeds=3)
    for cell in table.cells():
        ledger.add(replace(record_of(cell.config, 0.1 * cell.row.name.count("8")), settings=settings_of(cell.config)))
    (same,) = verdict(gather(table, ledger))
    assert same.startswith('"exact: outlines, pool, k=1" and "paper: outlines, pool, k=1" do not differ')
    own, exact = table.rows[0], table.rows[3]
    (other,) = verdict(gather(replace(table, rows=(own, exact)), ledger))
    assert other.endswith("They also differ in encoder and place of neighbours (batch or pool).")


def test_all_rows_that_are_compared_run_on_the_same_fresh_seeds() -> None:
    later = {"MnistCnn": 200}  # of MNIST-Add, where other settings used the first hundred
    for table in TABLES.values():
        for cell in table.cells():
            assert cell.row.first_seed == later.get(cell.row.engine, 100)
            assert cell.seed >= cell.row.first_seed


def test_a_place_may_ask_for_more_seeds_than_the_table() -> None:
    seeds = [cell.seed for cell in SUM_TABLE.cells() if cell.column.name == "MNIST SUM-3, n=100"]
    assert (seeds.count(109), seeds.count(119), seeds.count(139), seeds.count(140)) == (28, 9, 5, 0)


def test_a_place_is_never_filled_with_another_number_of_samples(tmp_path: Path) -> None:
    place = next(place for place in JOINT_TABLE.places() if place.column.name == "MNIST SUM-3, n=1,000")
    ledger = Ledger(tmp_path / "records.jsonl")
    for samples in (20_000, 1_500):
        ledger.add(record_of(replace(place.config, samples=samples, evaluate_every=1)))
    assert not any(entry.records for entry in gather(JOINT_TABLE, ledger))
    assert [entry.place.column.name for entry in gather(SUM_TABLE, ledger) if entry.records] == ["MNIST SUM-3, all"]


def test_fresh_runs_take_the_place_of_old_ones_and_stale_ones_are_marked(tmp_path: Path) -> None:
    place = next(SUM_TABLE.places())
    ledger = Ledger(tmp_path / "records.jsonl")

    def entry() -> CellResult:
        return gather(SUM_TABLE, ledger)[0]

    for seed in range(10):
        ledger.add(record_of(replace(place, seed=seed).config))
    assert (entry().mark, entry().seeds) == ("old", list(range(10)))
    ledger.add(replace(fresh(replace(place, seed=100).config, 0.5), versions=versions()))
    assert (entry().mark, entry().seeds) == ("stale", [100])
    made = replace(record_of(replace(place, seed=101).config), versions=versions())
    ledger.add(replace(made, probe={"draws": digest("draws")}))
    ledger.add(replace(made, config=replace(place, seed=100).config.as_dict(), probe={"draws": digest("draws")}))
    assert (entry().mark, entry().seeds) == ("", [100, 101])
    ledger.add(replace(fresh(replace(place, seed=102).config, 0.5), versions=versions()))
    assert (entry().mark, entry().seeds) == ("", [100, 101])  # a stale run is not mixed with results
    assert next(record.probe for record in ledger.history(replace(place, seed=100).config)) == {"draws": "0"}


def test_a_place_without_runs_says_what_they_would_cost(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "records.jsonl")
    none, frozen = list(SUM_TABLE.places())[:2]
    assert {entry.hours for entry in gather(SUM_TABLE, ledger)} == {None}
    ledger.add(record_of(none.config))  # two epochs of a second each
    entries = gather(SUM_TABLE, ledger)
    assert entries[0].place == none
    assert entries[0].hours == pytest.approx(10 * 50 / 3600)  # an old run is no result
    assert entries[1].place == frozen
    assert entries[1].hours == pytest.approx(10 * 50 / 3600)


def test_what_the_paper_prints_twice_is_one_claim(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "records.jsonl")
    claims = [claim for table in (SUM_TABLE, ABLATION_TABLE) for claim in claims_of(gather(table, ledger))]
    twice = [claim for claim in claims if claim.paper == "+17.2" and claim.kind == "accuracy gain"]
    assert [claim.what for claim in twice] == [
        "dolphin + trainable over dolphin, MNIST SUM-3, n=100",
        "dolphin + trainable over dolphin, batch 64",
    ]
    assert len([claim for claim in distinct(claims) if claim.paper == "+17.2"]) == 1
    assert {claim.verdict for claim in claims} == {"not run"}
    assert {claim.kind for claim in claims} == {
        "accuracy gain", "share kept", "difference between encoders", "rank of ABLSim",
    }  # fmt: skip


def test_accuracy_gains_are_counted_apart_from_shares() -> None:
    gains = entries_with([17.0, 16.0, 18.0, 17.5])
    kept = [replace(gains[1], published={"retained": (80.0, 1.0), "gold": (95.0, 1.0)})]
    assert in_short(claims_of([*gains, *kept])) == "Of the paper's 2 shares kept, 1 is less here, 1 is within 3 points."
    assert in_short(claims_of(gains)) == "Of the paper's 1 gains in accuracy of more than a point, 1 reproduces."


def test_a_row_above_gold_labels_is_explained_by_chance_only_if_both_were_trained_alike() -> None:
    places = {place.row.name: place for place in SCALE_TABLE.places() if place.column.name == "MNIST SUM-30"}

    def cell(row: str, accuracy: float, **changes: Any) -> CellResult:
        place = places[row]
        return CellResult(place, (fresh(replace(replace(place, seed=100).config, **changes), accuracy),))

    exact, ceiling, steps = "exact loss", "gold labels", "gold labels, small steps"
    assert above_ceiling([cell(exact, 0.9), cell(steps, 0.8)]) == "A row can lie above gold labels by chance."
    said = above_ceiling([cell(exact, 0.9), cell(ceiling, 0.8)])
    assert said.startswith("*exact loss*: no run on gold labels has the same epochs, batches and seeds")
    assert above_ceiling([cell(exact, 0.9), cell(steps, 0.8, epochs=3)]) == said
    assert above_ceiling([cell(exact, 0.8), cell(ceiling, 0.9)]) == ""


def test_a_table_may_be_run_on_the_next_hundred_of_seeds() -> None:
    seeds = {cell.seed for cell in Selection(seeds=3, first_seed=200).of(SUM_TABLE).cells()}
    assert seeds == {200, 201, 202}
