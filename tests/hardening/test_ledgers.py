"""The ledger of finished runs: damage is refused in words, and no figure changes unnoticed; two commands share it."""

from __future__ import annotations

import json
import multiprocessing
import random
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.tables import Ledger
from clipper.errors import ClipperError, FileError
from clipper.training import EpochMetrics, Record
from tests.hardening.attack import EFFORT, ROOT, Clippers, answered, damaged, listing
from tests.launch import COMMAND

QUICK = ("table", "sum", "--quick", "--engine", "semantic", "--column", "SUM-3, n=100", "--variant", "none")
OLD = [line + b"\n" for line in (ROOT / "results" / "records.jsonl").read_bytes().splitlines()[:4]]
NESTED = b"[" * 100_000


def record_of(seed: int, epochs: int = 3) -> Record:
    draws = random.Random(seed)
    figures = [EpochMetrics(i + 1, 3 * draws.random(), draws.random(), 0.5, 1.0, 1.0, 0.02) for i in range(epochs)]
    return Record(RunConfig(seed=seed, epochs=epochs), figures, {"torch": "2"})


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    ledger = Ledger(tmp_path_factory.mktemp("ledger") / "records.jsonl")
    for seed in range(4):
        ledger.add(record_of(seed))
    return ledger.path.read_bytes().splitlines(keepends=True)


def read(path: Path, content: bytes) -> dict[str, Record] | ClipperError:
    path.write_bytes(content)
    ledger = answered(lambda: Ledger(path))
    return ledger if isinstance(ledger, ClipperError) else {repr(each.config): each for each in ledger.records()}


def test_a_damaged_ledger_is_refused_or_gives_right_figures_alone(lines, tmp_path):
    content, path = b"".join(lines), tmp_path / "records.jsonl"
    whole = read(path, content)
    refusals = 0
    for i, bad in enumerate(damaged(content, 300 * EFFORT, seed=5)):
        found = read(path, bad)
        if isinstance(found, ClipperError):
            assert isinstance(found, FileError), f"damage {i}: {found!r}"
            assert "line" in str(found)
            refusals += 1
        else:
            assert all(whole.get(name) == record for name, record in found.items()), f"damage {i} changed a figure"
    assert refusals >= 150 * EFFORT


def test_not_one_flipped_bit_of_a_line_changes_a_figure(lines, tmp_path):
    path, positions = tmp_path / "records.jsonl", random.Random(2)
    whole = read(path, lines[0])
    for _ in range(200 * EFFORT):
        bad = bytearray(lines[0])
        bad[positions.randrange(len(bad))] ^= 1 << positions.randrange(8)
        found = read(path, bytes(bad))
        assert isinstance(found, FileError) or found in ({}, whole)


def test_lines_of_the_first_format_are_read_as_they_are(tmp_path):
    found = read(tmp_path / "records.jsonl", b"".join(OLD))
    assert len(found) == 4
    for line, record in zip(OLD, found.values(), strict=True):
        document = json.loads(line)
        assert [figures.loss for figures in record.epochs] == document["epochs"]["loss"]
        assert record.config["seed"] == document["config"]["seed"]
    assert len(Ledger(ROOT / "results" / "records.jsonl")) >= 816


def test_damaged_lines_of_the_first_format_raise_nothing_raw(tmp_path):
    answers = [read(tmp_path / "records.jsonl", bad) for bad in damaged(b"".join(OLD), 60 * EFFORT, seed=9)]
    assert sum(isinstance(answer, FileError) for answer in answers) >= 30 * EFFORT


def crafted() -> list[bytes]:
    """Lines that are JSON, or nearly, and no record; without a checksum, as the first format is."""
    document: dict[str, Any] = json.loads(OLD[0])
    values: list[Any] = [None, 3, "text", [], {}, [[]], {"a": 1}, True]
    wrong = [{**document, name: value} for name in document for value in values]
    wrong = [each for each in wrong if each["versions"] not in ({}, {"a": 1})]
    wrong += [{key: value for key, value in document.items() if key != name} for name in document]
    wrong.append({**document, "more": 1})
    for name in document["epochs"]:
        column = document["epochs"][name]
        if name not in ("accuracy", "gold"):
            wrong.append({**document, "epochs": {**document["epochs"], name: [None, *column[1:]]}})
        for value in ("text", [1], {}, True, -1e300, 10**30, 1e308 * 10):
            if not (name == "loss" and value in (-1e300, 10**30)) and not (
                name.endswith("seconds") and value == 10**30
            ):
                wrong.append({**document, "epochs": {**document["epochs"], name: [value, *column[1:]]}})
        wrong.append({**document, "epochs": {**document["epochs"], name: column[1:]}})
    for name, value in (("lr", -1), ("lr", "x"), ("seed", 1.5), ("k", 0), ("rule", 3), ("slots", None), ("no", 1)):
        wrong.append({**document, "config": {**document["config"], name: value}})
    texts = [json.dumps(each).encode() for each in wrong]
    line = OLD[0].strip()
    texts += [
        line.replace(b'"seed": 0', value) for value in (b'"seed": 0, "seed": 1', b'"seed": NaN', b'"seed": 1e999')
    ]
    texts += [
        line.replace(b"3.11522", value) for value in (b"NaN", b"-Infinity", b"1e999", b"9" * 5000, b"0x3", b"\xff")
    ]
    texts += [line + line, b"\xef\xbb\xbf" + line, line.decode().encode("utf-16"), line.replace(b"3.11522", NESTED)]
    texts += [b'{"format": "clipper ledger 1", "config": ' + NESTED + b"}", b"\0" * 100, b"null", b"text", b"[]", b"{}"]
    return texts


def test_crafted_lines_are_refused(tmp_path):
    lines = crafted()
    for line in lines:
        answer = read(tmp_path / "records.jsonl", OLD[1] + line + b"\n" + OLD[2])
        assert isinstance(answer, FileError), f"taken: {line[:300]!r}"
        assert "line 2" in str(answer)
    assert len(lines) >= 100


def test_commands_refuse_a_damaged_ledger_in_words(clippers: Clippers, lines, tmp_path):
    path = tmp_path / "records.jsonl"
    for bad in [lines[0].replace(b"0.5", b"0.6", 1), crafted()[0], lines[0].rstrip() + lines[1], NESTED]:
        path.write_bytes(bad)
        before = listing(tmp_path)
        clippers.run(*QUICK, "--show", "-o", tmp_path).check_refused()
        clippers.run("results", "--records", tmp_path, "--to", tmp_path / "results.md").check_refused()
        assert listing(tmp_path) == before


def test_a_line_that_was_cut_off_is_told(clippers: Clippers, lines, tmp_path):
    (tmp_path / "records.jsonl").write_bytes(lines[0] + lines[1][:-40])
    ran = clippers.run(*QUICK, "--show", "-o", tmp_path)
    assert ran.code == 0
    assert "skipped 1 incomplete line" in ran.err


def test_records_are_shown_without_their_data(clippers: Clippers, tmp_path):
    (tmp_path / "records.jsonl").write_bytes((ROOT / "results" / "records.jsonl").read_bytes())
    nowhere = {"CLIPPER_DATA": str(tmp_path / "none"), "XDG_CACHE_HOME": str(tmp_path / "none")}
    ran = clippers.run("table", "scale", "--show", "--json", "-o", tmp_path, HOME=str(tmp_path / "none"), **nowhere)
    assert ran.code == 0, ran.err
    assert any(entry["seeds"] for entry in json.loads(ran.out)["entries"])


def test_runs_on_vqars_own_scenes_are_on_the_results_page(clippers: Clippers, tmp_path):
    ledger = Ledger(tmp_path / "records.jsonl")
    config = RunConfig(rule="vqar", data="vqar", names=50, samples=1000, epochs=30, evaluate_every=10, objective="none")
    epochs = [replace(record_of(0).last, epoch=i + 1, accuracy=0.4321) for i in range(30)]
    ledger.add(Record(config, epochs, {"torch": "2"}))
    ran = clippers.run("results", "--records", tmp_path, "--to", tmp_path / "results.md")
    assert ran.code == 0, ran.err
    text = (tmp_path / "results.md").read_text()
    assert "VQAR, 50 names, n=1,000" in text
    assert "43.2" in text
    shown = clippers.run("table", "vqar", "--show", "-o", tmp_path, "--json", CLIPPER_DATA=str(tmp_path / "none"))
    entries = [entry for entry in json.loads(shown.out)["entries"] if entry["column"] == "VQAR, 50 names, n=1,000"]
    assert entries[0]["seeds"] == [0]


def begin(folder: Path, *more: object) -> subprocess.Popen[bytes]:
    command = [*COMMAND, *QUICK, "--jobs", "1", "-o", folder, *more]
    return subprocess.Popen([*map(str, command)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="claims need file locks")
def test_two_commands_that_fill_one_table_do_no_run_twice(tmp_path):
    processes = [begin(tmp_path, "--seeds", 5, "--epochs", 4) for _ in range(2)]
    assert [process.wait(timeout=300) for process in processes] == [0, 0]
    seeds = [json.loads(line)["config"]["seed"] for line in (tmp_path / "records.jsonl").read_bytes().splitlines()]
    assert sorted(seeds) == list(range(100, 105))
    assert not [path for path in tmp_path.iterdir() if path.suffix in (".claim", ".part")]


def _add_many(path: Path, first: int) -> None:
    ledger = Ledger(path)
    for seed in range(first, first + 20):
        ledger.add(record_of(seed))
        time.sleep(0.001)


@pytest.mark.slow
def test_a_ledger_sees_what_others_add(tmp_path):
    path = tmp_path / "records.jsonl"
    ledger = Ledger(path)
    writer = multiprocessing.get_context("spawn").Process(target=_add_many, args=(path, 0))
    writer.start()
    seen = 0
    while writer.is_alive():
        ledger.refresh()
        assert len(ledger) >= seen
        seen = len(ledger)
        time.sleep(0.002)
    ledger.refresh()
    assert len(ledger) == 20
