"""Blocks: the figures on the pages are those of the records, and what is no result is marked."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from clipper.benchmarks.probe import COMPARABLE
from clipper.benchmarks.tables import Ledger, tables_of
from clipper.benchmarks.tables.catalogue import SUM_TABLE
from clipper.benchmarks.tables.ledger import RECORDS
from clipper.errors import InputError
from clipper.report.blocks import Sources, block, has_blocks, pictures, refreshed
from clipper.training import EpochMetrics, Record
from clipper.training.environment import versions

ROOT = Path(__file__).parents[2]
PAGES = [page for page in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))) if has_blocks(page.read_text())]
GONE = (
    "ten seeds each;",
    "claims that were put to the test",
    "seeds that nothing was settled on",
    "which nothing was settled on",
    "every run, every seed",
    "no interval there excludes zero",
    "worse with Scallop",
)
"""What pages said once, and was not so."""
NOT_MEASURED = (
    "and 5 % of the sums are wrong",
    "mixed with 1 % of the uniform distribution",
    "chance finds 33.3 % or\n10 %",
    "its baselines are at 25 to 35 %",
    "segments are 1 % of its 30,000 pairs",
    "hold 95 % of the probability",
    "the 95 % intervals of the differences",
    "*s to 95 %* is the time that a contestant needs to reach 95 % of the best final accuracy",
)
"""Shares outside of blocks: settings, chance and figures of the paper."""


@pytest.fixture(scope="module")
def sources() -> Sources:
    if not (ROOT / "results" / RECORDS).exists():
        pytest.skip("the records are not here")
    found = Sources(ROOT / "results")
    fresh = [record for record in found.ledger.records() if record.probe]
    here = versions()
    if any(record.versions.get(name) != here[name] for record in fresh for name in COMPARABLE):
        pytest.skip("the records were made with other packages, so that nobody can tell which are stale")
    return found


def test_the_pages_with_figures_have_blocks():
    names = [str(page.relative_to(ROOT)) for page in PAGES]
    assert {"README.md", "docs/results.md", "docs/joint.md"} <= set(names)
    tables = {table.name for table in tables_of(Ledger("no-such-folder/records.jsonl"))}
    assert {f"docs/results/{name}.md" for name in tables} <= set(names), "clipper results writes them"


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_says_what_the_records_say(page, sources):
    text = page.read_text(encoding="utf-8")
    assert refreshed(text, sources) == text, "clipper results makes it anew"


@pytest.mark.slow
def test_the_figures_on_the_pages_show_what_the_records_say(sources):
    folder = ROOT / "docs" / "images"
    own = [folder / "race.svg", folder / "encoders.svg", *(folder / "results").glob("*.svg")]
    there = {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in own}
    version = pytest.importorskip("matplotlib").__version__
    if not all(version in text for text in there.values()):
        pytest.skip("the figures were drawn by another version of matplotlib")
    assert pictures(sources) == there, "clipper results draws them anew"


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))], ids=lambda page: page.name)
def test_no_page_says_what_was_not_so(page):
    text = page.read_text(encoding="utf-8").lower()
    assert not [phrase for phrase in GONE if phrase in text]


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))], ids=lambda page: page.name)
def test_measured_shares_stand_in_blocks(page):
    text = re.sub(
        r"(?s)<!-- clipper results: ([\w-]+) -->.*?<!-- end of \1 -->|^```.*?^```$",
        "",
        page.read_text(encoding="utf-8"),
        flags=re.M,
    )
    for phrase in NOT_MEASURED:
        text = text.replace(phrase, "")
    assert not re.findall(r".*\d %.*|.*\d ± \d.*", text)


def recorded(folder: Path, seed: int, samples: int = 100) -> Sources:
    place = next(SUM_TABLE.places())
    config = replace(place, seed=seed).config
    ledger = Ledger(folder / RECORDS)
    for number in range(2):
        epochs = [EpochMetrics(1, 2.5, 0.98 + 0.02 * number, 1.0, 1.0, 3.6, 0.0)]
        made = Record(replace(config, seed=seed + number, samples=samples, epochs=50), epochs, {"torch": "2"})
        ledger.add(replace(made, probe={"training": "0"}))
    return Sources(folder)


def test_a_block_is_replaced_and_the_rest_of_the_page_is_left_alone(tmp_path):
    page = f"# Mine\n\nbefore\n\n{block('joint', 'old figures')}\n\nafter <!-- a comment -->\n"
    made = refreshed(page, recorded(tmp_path, 100))
    assert "old figures" not in made
    assert made.startswith("# Mine\n\nbefore\n\n<!-- clipper results: joint -->\n|")
    assert made.endswith("<!-- end of joint -->\n\nafter <!-- a comment -->\n")
    assert refreshed(made, recorded(tmp_path, 100)) == made


def test_runs_on_development_seeds_are_marked_in_every_cell(tmp_path):
    text = refreshed(block("table-sum"), recorded(tmp_path / "old", 0))
    assert "| semantic | 99.0 *old* |" in text
    assert "| semantic | 99.0 |" in refreshed(block("table-sum"), recorded(tmp_path / "new", 100))


def test_runs_on_development_seeds_are_never_ahead_of_the_paper(tmp_path):
    table = next(table for table in tables_of(Ledger(tmp_path / RECORDS)) if table.name == "scale")
    places = {(place.row.name, place.column.name): place for place in table.places()}
    ledger = Ledger(tmp_path / RECORDS)
    for column, accuracy in (("MNIST SUM-30", 0.99), ("MNIST MAX-30", 0.10)):
        config = replace(places["exact loss", column], seed=0).config
        ledger.add(Record(config, [EpochMetrics(1, 2.5, accuracy, 1.0, 1.0, 3.6, 0.0)], {"torch": "2"}))
    text = refreshed(block("long"), Sources(tmp_path))
    assert [line.split(" | ")[-1] for line in text.splitlines() if "-30 |" in line] == [
        "no result yet |",
        "behind (luck) |",
    ]


def test_a_difference_within_the_deviation_is_level(tmp_path):
    table = next(table for table in tables_of(Ledger(tmp_path / RECORDS)) if table.name == "scale")
    places = {(place.row.name, place.column.name): place for place in table.places()}
    ledger = Ledger(tmp_path / RECORDS)
    for column, accuracy in (
        ("MNIST SUM-30", 0.99), ("MNIST SUM-40", 0.99), ("MNIST MAX-30", 0.27), ("MNIST MAX-40", 0.10),
    ):  # fmt: skip
        for seed in (100, 101) if column != "MNIST SUM-40" else (100,):
            config = replace(places["exact loss", column], seed=seed).config
            made = Record(config, [EpochMetrics(1, 2.5, accuracy, 1.0, 1.0, 3.6, 0.0)], {"torch": "2"})
            ledger.add(replace(made, probe={"training": "0"}))
    text = refreshed(block("long"), Sources(tmp_path))
    found = [
        line.split(" | ")[-1] for line in text.splitlines() if line.startswith("| MNIST") and "not run" not in line
    ]
    assert found == ["ahead |", "one seed: no verdict |", "level (luck) |", "behind (luck) |"]


def test_what_is_not_run_says_what_it_costs_and_intervals_stay_within_100(tmp_path):
    text = refreshed(block("table-sum"), recorded(tmp_path, 100))
    assert "| semantic + frozen | not run (0.5 h) | – |" in text  # ten runs of 50 epochs of 3.6 s
    assert "| semantic | accuracy, % | 99.0 ± 1.4 | 86.3 to 100.0 | 100 to 101 | 98.0, 100.0 |" in text


def test_every_interval_on_the_pages_lies_within_0_and_100():
    found = re.findall(r"\| ([-\d.]+) to ([-\d.]+) \|", "".join(page.read_text() for page in PAGES))
    assert len(found) > 50
    assert all(0 <= float(low) <= float(high) <= 100 for low, high in found)


def test_a_block_that_nobody_knows_or_that_has_no_end_is_refused(tmp_path):
    with pytest.raises(InputError, match="one of the blocks results"):
        refreshed(block("nonsense"), Sources(tmp_path))
    with pytest.raises(InputError, match="end with its comment"):
        refreshed("<!-- clipper results: zoo -->\nno end\n", Sources(tmp_path))
    assert "Not run." in refreshed(block("zoo"), Sources(tmp_path))
