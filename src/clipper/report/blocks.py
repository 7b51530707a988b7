"""Blocks: the parts of Markdown pages that `clipper results` writes from recorded runs.

A block begins with `<!-- clipper results: NAME -->` and ends with `<!-- end of NAME -->`. Do not edit what is between
them: `clipper results` replaces it.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from clipper.benchmarks.bench_ablation import changes, summary_of
from clipper.benchmarks.bench_zoo import read_rows
from clipper.benchmarks.measurements import FILE, measurements
from clipper.benchmarks.probe import changed
from clipper.benchmarks.race.run import read_rows as race_rows
from clipper.benchmarks.race.summary import Standing, standings
from clipper.benchmarks.statistics import deviation, interval, percent
from clipper.benchmarks.tables import CellResult, Ledger, Table, gather, tables_of
from clipper.benchmarks.tables.layout import FRESH
from clipper.benchmarks.tables.ledger import RECORDS
from clipper.benchmarks.tables.summary import MARKS
from clipper.benchmarks.zoo import LINES
from clipper.benchmarks.zoo_summary import promises, summarise
from clipper.errors import InputError
from clipper.files import Row
from clipper.report.bench_text import (
    inferred_pools,
    load_of,
    overhead,
    overhead_claims,
    pruned_pools,
    ranks,
    sent_bytes,
)
from clipper.report.claims import NOTHING, Claim, claims_of, difference, in_short, paired, reproduced
from clipper.report.figures import encoder_figure, forest_figure, on_paper
from clipper.report.race_page import ENTRY_COLUMNS, busy_note, entry_cells, packages_of, standings_figure
from clipper.report.table_text import (
    above_ceiling,
    drawn_rows,
    figure,
    markdown_table,
    numbers,
    overview,
    papers,
    picture_of,
    results_text,
    section,
    usual_seeds,
)
from clipper.report.zoo_page import PROMISE_COLUMNS, promise_cells, verdicts

_BLOCK = re.compile(
    r"(?m)^<!-- clipper results: (?P<name>[\w-]+) -->\n(?:.*?\n)??<!-- end of (?P=name) -->$", re.DOTALL
)
OF_TABLE = "table-"
"""Prefix of the name of a block that holds a single table; the rest is the table's name."""
_README_ROWS = {
    "semantic": "all candidates (semantic loss)",
    "semantic + trainable": "the paper's program: one neighbour in the batch, by the network's own layer",
    "semantic + exact": "`exact`: the problem that this program is meant to solve, with the same neighbours",
    "semantic + random": "the control: as many discarded at random as by `exact`",
    "semantic + joint": "[joint inference](docs/joint.md): eight neighbours in the whole pool, by outlines",
    "gold labels": "gold labels of the same images",
}
_LONG = {
    "MNIST SUM-30": ("scale", "MNIST SUM-30"),
    "MNIST SUM-40": ("scale", "MNIST SUM-40"),
    "MNIST MAX-30": ("scale", "MNIST MAX-30"),
    "MNIST MAX-40": ("scale", "MNIST MAX-40"),
    "HWF-7": ("joint", "HWF-7, n=1,000"),
    "HWF-15": ("joint", "HWF-15, n=1,000"),
}
"""The paper's hardest tasks, by the table and the column of our runs. It does not state its number of formulas."""
_BY_LUCK = ("MNIST MAX-30", "MNIST MAX-40")
"""Tasks whose samples identify few labels, so that accuracy depends on luck."""
ZOO_LINES = (
    "sum-3/digits/100", "sum-4/digits/100", "sum-3/mnist/100", "sum-3/mnist/1000", "sum-3/gaussians/100",
    "sum-3-mod-10/digits/100", "product-3-mod-10/digits/100", "luhn-3/digits/100", "xor-3/cancer/100",
    "difference/digits/100", "difference/digits/100/known-1", "even-odd/mnist/300", "sum-3-is-0-mod-10/digits/100",
    "max-3/digits/100", "less/digits/100", "equal/digits/100", "sum-3/digits/20", "sum-3/digits/100/wrong-10",
    "sum-3/mnist/300/missing-1", "sum-3/mnist/100/missing-1", "sum-3/digits/100/shuffled", "sum-3/noise/100/one-target",
    "sum-3/digits/100/backgrounds",
)  # fmt: skip
"""The lines of the zoo that a page shows."""


@dataclass(frozen=True)
class Sources:
    """The folder that blocks get their figures from: records of tables, zoo, ablation and race, and measurements."""

    folder: Path

    @cached_property
    def ledger(self) -> Ledger:
        """The runs of all tables."""
        return Ledger(self.folder / RECORDS)

    @cached_property
    def tables(self) -> dict[str, tuple[Table, list[CellResult]]]:
        """Each table and its recorded runs, by name."""
        return {table.name: (table, gather(table, self.ledger)) for table in tables_of(self.ledger)}

    def entries(self, name: str) -> list[CellResult]:
        """The recorded runs of a table."""
        return self.tables[name][1]

    def rows(self, name: str) -> list[Row]:
        """The rows of a file in the format of the zoo."""
        return list(read_rows(self.folder / name).values())

    def measured(self, bench: str) -> list[Row]:
        """The measurements of a command of `clipper bench`."""
        return measurements(self.folder / FILE, bench)

    @cached_property
    def race(self) -> list[Row]:
        """The rows of the race."""
        return list(race_rows(self.folder / "race.jsonl").values())


def refreshed(page: str, sources: Sources) -> str:
    """A page with all its blocks rewritten.

    Args:
        page: the text, in Markdown.
        sources: the recorded runs.

    Raises:
        InputError: a block has an unknown name, or no end.
    """
    begun = page.count("<!-- clipper results: ")
    if len(list(_BLOCK.finditer(page))) != begun:
        raise InputError("expected every block to end with its comment, <!-- end of NAME -->, got one that does not")

    def made(found: re.Match[str]) -> str:
        name, table = found["name"], found["name"].removeprefix(OF_TABLE)
        if name != table and table in sources.tables:
            return block(name, section(*sources.tables[table], images="../images/"))
        if name not in BLOCKS:
            known = ", ".join([*BLOCKS, *(f"{OF_TABLE}{each}" for each in sources.tables)])
            raise InputError(f"expected one of the blocks {known}, got {name!r}")
        return block(name, BLOCKS[name](sources))

    return _BLOCK.sub(made, page)


def block(name: str, text: str = "") -> str:
    """A block with its comments.

    Examples:
        >>> print(block("zoo", "| line |"))
        <!-- clipper results: zoo -->
        | line |
        <!-- end of zoo -->
    """
    return f"<!-- clipper results: {name} -->\n{text.strip()}\n<!-- end of {name} -->"


def pages_of_tables(sources: Sources) -> dict[str, str]:
    """A page with an empty block for each table, by file name."""
    return {
        f"{table.name}.md": f"# {table.title}\n\n{block(f'{OF_TABLE}{table.name}')}\n"
        for table, _ in sources.tables.values()
    }


def pictures(sources: Sources) -> dict[str, str]:
    """The figures of pages, as SVG by the path in docs/images."""
    found = standings(sources.race)
    drawn = {"race.svg": standings_figure(found)} if any(standing.entries for standing in found) else {}
    for table, entries in sources.tables.values():
        for column in table.columns:
            if shown := drawn_rows(entries, column):
                theirs = [entry for entry in shown if "accuracy" in entry.published]
                published = {entry.place.row.name: entry.published["accuracy"] for entry in theirs}
                runs = {entry.place.row.name: entry.records for entry in shown}
                drawn[picture_of(table, column)] = forest_figure(runs, published)
    points: dict[str, dict[str, tuple[float, float]]] = {}
    for entry in sources.entries("encoders"):
        if near := entry.values("near"):
            objective, encoder = entry.place.config.objective, entry.place.config.encoder
            right = statistics.mean(entry.values("accuracy")) / 100
            points.setdefault(objective, {})[encoder] = statistics.mean(near) / 100, right
    if points:
        drawn["encoders.svg"] = encoder_figure(points)
    return {name: on_paper(svg) for name, svg in drawn.items()}


def has_blocks(page: str) -> bool:
    """Whether a page has blocks."""
    return _BLOCK.search(page) is not None


def wide(entries: Sequence[CellResult], names: Mapping[str, str] | None = None, columns: Sequence[str] = ()) -> str:
    """A table of accuracies, rows by tasks, with a footnote that explains marks and seeds."""
    tasks = list(columns) or list(dict.fromkeys(entry.place.column.name for entry in entries))
    rows = dict(names or {entry.place.row.name: entry.place.row.name for entry in entries})
    at = {(entry.place.row.name, entry.place.column.name): entry for entry in entries}
    shown = [at[row, task] for row in rows for task in tasks if (row, task) in at]
    usual = usual_seeds(shown)
    cells = [
        [title, *(figure(at[row, task], "accuracy", usual=usual) if (row, task) in at else NOTHING for task in tasks)]
        for row, title in rows.items()
    ]
    return markdown_table(["", *tasks], cells) + "\n" + footnote(shown)


def series(numbers: Collection[int]) -> str:
    """Whole numbers as ranges.

    Examples:
        >>> series([103, 100, 101, 102, 200])
        '100 to 103, 200'
    """
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][-1] + 1:
            spans[-1] = [spans[-1][0], number]
        else:
            spans.append([number])
    return ", ".join(" to ".join(map(str, span)) for span in spans)


def footnote(entries: Sequence[CellResult]) -> str:
    """The seeds and commits of the figures, and the meaning of the marks."""
    parts = []
    for mark in ("", *MARKS):
        own = [entry for entry in entries if entry.records and entry.mark == mark]
        if own:
            many = sorted({len(entry.records) for entry in own})
            number = (
                f"{many[0]} seed{'s' if many[0] > 1 else ''}" if len(many) == 1 else f"{many[0]} to {many[-1]} seeds"
            )
            commits = sorted({record.commit for entry in own for record in entry.records} - {"", "unknown"})
            made = f"; commit{'s' if len(commits) > 1 else ''} ".join(
                filter(None, [series({s for e in own for s in e.seeds}), ", ".join(commits)])
            )
            parts.append(f"*{mark}* ({number}: {made}): {MARKS[mark]}." if mark else f"Means over {number} ({made}).")
    parts += filter(None, [above_ceiling(entries)])
    if any(not entry.records and not entry.place.row.source for entry in entries):
        parts.append("Not run: estimated core-hours in brackets.")
    return " ".join(parts)


def _readme(sources: Sources) -> str:
    entries, tasks = sources.entries("sum"), ["MNIST SUM-3, n=100", "MNIST SUM-4, n=100"]
    gains = [claim for claim in _all_claims(sources) if claim.kind == "accuracy gain"]
    return "\n".join(
        [
            "Accuracy after the last epoch, in %. The training set is 100 samples of MNIST digits of which only the "
            "sum is known. All rows train the paper's network, all but the last one with the semantic loss. Outlines "
            "are a fixed description of an image by its edges. Joint inference differs from the paper's program in "
            "encoder, number and place of neighbours, and method ([one change at a "
            "time](docs/joint.md#one-change-at-a-time)):\n",
            wide(entries, _README_ROWS, tasks),
            _in_pairs(entries, tasks),
            "\nLonger tasks, with the paper's best figure beside our best:\n",
            _against_the_paper(sources),
            f"\n{in_short(gains)} {reproduced(gains)} *Not seen*: our 95 % interval contains zero, and not the "
            "paper's gain. [All results, seed by seed and claim by claim](docs/results.md).",
        ]
    )


def _in_pairs(entries: Sequence[CellResult], tasks: Sequence[str]) -> str:
    """Sentences on what the paper's pruning adds, and how far joint inference is from gold labels, paired by seed."""
    found = {(entry.place.row.name, entry.place.column.name): entry for entry in entries}
    sentences = []
    for row, base, said in (
        ("semantic + trainable", "semantic", "The paper's program adds {gain} to all candidates"),
        ("dolphin + trainable", "dolphin", "With Dolphin, one of the losses that the paper uses, it adds {gain}"),
        ("semantic + joint", "gold labels", "Joint inference differs from gold labels by {gain}"),
    ):
        gains = []
        for task in tasks:
            pairs = paired(found[row, task], found[base, task])
            if len(pairs) > 1:
                low, high = interval(pairs)
                published = [found[each, task].published.get("accuracy") for each in (row, base)]
                theirs = [figure[0] for figure in published if figure is not None]
                paper = f"; the paper: {theirs[0] - theirs[1]:+.1f}" if len(theirs) == 2 else ""
                gains.append(
                    f"{statistics.mean(pairs):+.1f} [{low:+.1f}, {high:+.1f}] points on {task.partition(',')[0]} "
                    f"({len(pairs)} seeds{paper})"
                )
        if gains:
            sentences.append(f"{said.format(gain=' and '.join(gains))}.")
    return (
        " ".join([*sentences, "In brackets: 95 % intervals of the differences, paired by seed."]) if sentences else ""
    )


def _all_claims(sources: Sources) -> list[Claim]:
    """The paper's claims in all its tables."""
    claims = [claim for _, own in sources.tables.values() for claim in claims_of(own)]
    return claims + overhead_claims(sources.measured("train"), sources.entries("ablation"))


def _standing(lead: float, margin: float, mark: str, seeds: int) -> str:
    """Whether ours is ahead of the paper's; a single run and runs that do not count as results are never ahead."""
    if lead < -margin:
        return "behind"
    if mark or seeds == 1:
        return "no result yet" if mark else "one seed: no verdict"
    return "ahead" if lead > margin else "level"


def _against_the_paper(sources: Sources) -> str:
    """The paper's best figure beside ours, for every task; runs that do not count as results are never ahead."""
    rows, shown = [], []
    for task, (name, column) in _LONG.items():
        published = sources.entries("scale" if name == "scale" else "hwf")
        theirs = [e for e in published if e.place.column.name == task and "accuracy" in e.published]
        best = max(theirs, key=lambda entry: entry.published["accuracy"][0])
        own = [e for e in sources.entries(name) if e.place.column.name == column]
        own = [e for e in own if e.records and e.place.config.objective != "gold"]
        if not own:
            rows.append([task, papers(best, "accuracy"), "not run", "", ""])
            continue
        ours = max(own, key=lambda entry: (not entry.mark, statistics.mean(entry.values("accuracy"))))
        values, (paper, spread) = ours.values("accuracy"), best.published["accuracy"]
        margin = max(spread, deviation(values))  # within it, neither is ahead
        lead = statistics.mean(values) - paper
        shown.append(ours)
        rows.append(
            [
                column,
                papers(best, "accuracy"),
                figure(ours, "accuracy", briefly=True) + (", 1 seed" if len(values) == 1 else ""),
                ours.place.row.name,
                _standing(lead, margin, ours.mark, len(values)) + (" (luck)" if task in _BY_LUCK else ""),
            ]
        )
    note = (
        "Ours is the best of our rows. It differs from the paper's in more than pruning: it has another loss, and on "
        "sums and maxima 8 epochs in batches of 8 samples (the paper: 50 in batches of 64), on HWF 6 epochs with a "
        "learning rate of 1e-3 (HWF-7) or 3e-4 (HWF-15; the paper: 50 epochs, 1e-4). Ahead or behind: the means differ "
        "by more than the larger of the two standard deviations. Luck: for about eight of ten images of MAX-30, and "
        "nine of ten of MAX-40, the samples do not tell which digit they show (`clipper bench ceiling`). A network "
        "gets such an image right only by luck, and the figures do not show who learns more. The paper trains HWF on "
        '"the full dataset" and does not say how many formulas that is.'
    )
    return markdown_table(["", "paper, best", "here, best", "by", ""], rows) + f"\n{footnote(shown)} {note}"


def _tasks(name: str) -> Callable[[Sources], str]:
    """A block with the tasks of a table that were run."""

    def made(sources: Sources) -> str:
        table, entries = sources.tables[name]
        by_column = {c.name: [e for e in entries if e.place.column == c] for c in table.columns}
        missing = sum(not entry.records and not entry.place.row.source for entry in entries)
        run = {column: own for column, own in by_column.items() if any(entry.records for entry in own)}
        shown = {column: [e for e in own if e.records or e.published] for column, own in run.items()}
        parts = [f"**{column}**\n\n{numbers(table, own)}" for column, own in shown.items()]
        also = f", and the cells that are not run: {missing}" if missing else ""
        note = footnote([entry for own in shown.values() for entry in own])
        return "\n".join([*parts, f"{note} [Intervals, every seed{also}](results/{name}.md)."])

    return made


def _joint(sources: Sources) -> str:
    return wide(sources.entries("joint"))


def _confounds(sources: Sources) -> str:
    """The tasks with at least three results. The page of the table says what the others would cost."""
    table, entries = sources.tables["confounds"]
    parts, shown, missing = [], [], []
    for column in table.columns:
        own = [entry for entry in entries if entry.place.column == column]
        if drawn_rows(own, column):
            parts.append(f"**{column.name}**\n\n{numbers(table, own)}")
            shown += own
        else:
            missing.append(column.name)
    note = f"Not run: {'; '.join(missing)}. " if missing else ""
    return "\n".join([*parts, f"{footnote(shown)} {note}[Intervals, every seed, and costs](results/confounds.md)."])


def _zoo(sources: Sources) -> str:
    """The newest series of seeds: which promises held, and the figures of some lines."""
    rows = sources.rows("zoo.jsonl")
    if not rows:
        return "Not run."
    newest, present = max(row["seed"] for row in rows) // 100, {line.name for line in LINES}
    rows = [row for row in rows if row["seed"] // 100 == newest and row["line"] in present]
    lines = {line["line"]: line for line in summarise(rows)}
    cells = [
        _zoo_line(lines[name], [row for row in rows if row["line"] == name]) for name in ZOO_LINES if name in lines
    ]
    heads = [
        "line", "verdicts", "labels right", "by the best naming", "gold kept", "lowest", "candidates kept",
        "EM: labels right",
    ]  # fmt: skip
    return "\n".join(
        [
            f"{len(rows):,} pools, {_made(rows)}.\n",
            markdown_table(PROMISE_COLUMNS, [promise_cells(promise) for promise in promises(rows)]),
            f"Means over the pools of a line; {len(cells)} of {len(lines)} lines:\n",
            markdown_table(heads, cells),
        ]
    )


def _zoo_line(line: Mapping[str, Any], rows: Sequence[Row]) -> list[str]:
    named = [row["best_naming_right"] for row in rows if row.get("best_naming_right") is not None]
    em = line["em"] or {"labels_right": None}
    return [
        line["line"],
        verdicts(line),
        percent(line["labels_right"]),
        percent(statistics.fmean(named) if named else None),
        percent(line["gold_kept"]),
        percent(line["gold_kept_lowest"]),
        percent(line["candidates_kept"]),
        percent(em["labels_right"]),
    ]


def _chosen_neighbours(sources: Sources) -> str:
    """Whether the best choices of neighbours hold on the seeds that played no part in the choice."""
    entries = {entry.place.row.name: entry for entry in sources.entries("neighbours")}
    base, parts = entries["all candidates"], []
    for name, said in (
        ("paper, k=2", "with the two nearest neighbours, by the network's own layer"),
        ("paper, outlines, θ=1.3", "with all neighbours nearer than θ = 1.3, by outlines"),
    ):
        found = _confirmed(entries[name])
        gains = paired(found, base)
        if len(gains) < 2:
            return "Not run."
        control = entries.get(name.replace("paper", "random"))
        over = paired(found, control) if control is not None else []
        also = f" ({difference(over)} over the control that discards as many at random)" if len(over) > 1 else ""
        parts.append(f"{difference(gains)} points {said}{also}")
    seeds = series(found.seeds)
    return (
        "`clipper table neighbours` varies the number of neighbours k, and the threshold θ. The best of each on ten "
        f"seeds were then run on {len(found.seeds)} other seeds ({seeds}), which played no part in the choice. There, "
        f"compared with all candidates, the paper's program with Dolphin gains {', and '.join(parts)}. "
        "[All values of k and θ](../results/neighbours.md)."
    )


def _confirmed(entry: CellResult) -> CellResult:
    """The runs of a cell without those on the first ten fresh seeds, by which the cell was chosen."""
    return replace(entry, records=tuple(each for each in entry.records if each.config["seed"] >= FRESH + 10))


def _made(rows: Sequence[Row]) -> str:
    """The seeds and commits of the rows, and whether the method has changed since."""
    commits = sorted({str(row["commit"]) for row in rows})
    parts = [f"seeds {series({row['seed'] for row in rows})}, commit {', '.join(commits)}"]
    if not all(row.get("probe") for row in rows):
        parts.append("*old*: the rows have no record of the method's version")
    elif any(changed(row["probe"], row["versions"]) for row in rows):
        parts.append(f"*stale*: {MARKS['stale']}")
    return "; ".join(parts)


def _ablation(sources: Sources) -> str:
    by_change: dict[str, list[Row]] = {}
    rows = sources.rows("ablation.jsonl")
    if not rows:
        return "Not run."
    for row in rows:
        by_change.setdefault(row["settings"]["change"], []).append(row)
    found = [summary_of(name, by_change[name]) for name in changes() if name in by_change]
    cells = [
        [
            "unchanged" if each["change"] == changes()[0] else each["change"],
            str(each["settled"]),
            percent(each["best_naming_right"]),
            percent(each["gold_kept"]),
            percent(each["gold_kept_lowest"]),
            percent(each["candidates_kept"]),
            percent(each["accuracy_gap"]),
        ]
        for each in found
    ]
    pools, believed = found[0]["pools"], sum(each["troubled_believed"] for each in found)
    heads = [
        "change", f"settled, of {pools}", "right by the best naming", "gold kept", "lowest", "candidates kept",
        "gap of expected accuracy",
    ]  # fmt: skip
    return "\n".join(
        [
            f"{len(rows):,} pools, {_made(rows)}. These seeds were used to develop the method, so the figures "
            f"are no results. Pools with nothing to find that were called joint or ambiguous, under all changes: "
            f"{believed}.\n",
            markdown_table(heads, cells),
        ]
    )


def _race(sources: Sources) -> str:
    """A table for each task of the race, and sentences about who is first."""
    rows = sources.race
    if not rows:
        return "Not run."
    parts = []
    for standing in standings(rows):
        table = markdown_table(ENTRY_COLUMNS, [entry_cells(entry) for entry in standing.entries])
        parts.append(f"**{standing.title}, {standing.seconds:g} seconds**\n\n{table}\n{' '.join(standing.verdict)}\n")
    notes = [f"{_made_by(rows)} {packages_of(rows)}.", f"The machine had {load_of(rows)}.", busy_note(rows)]
    return "\n".join([*parts, *filter(None, notes)])


def _race_summary(sources: Sources) -> str:
    """On how many tasks the best contestant uses Clipper, and who is level or first on the others."""
    found = [standing for standing in standings(sources.race) if standing.entries]
    if not found:
        return "Not run."
    first, others = 0, []
    for standing in found:
        ours = next((entry for entry in standing.entries if entry.contestant.ours), None)
        other = next((entry for entry in standing.entries if not entry.contestant.ours), None)
        if ours is None or other is None:
            continue
        lead = round(100 * (ours.mean - other.mean), 1)
        first += lead > 0
        if lead == 0:
            others.append(f"On {standing.title}, {ours.contestant.title} and {other.contestant.title} are level.")
        elif lead < 0:
            others.append(
                f"On {standing.title}, {other.contestant.title} is {-lead:.1f} points ahead of {ours.contestant.title}."
            )
    names = {each.entries[0].contestant.title for each in found if each.entries[0].contestant.ours}
    who = names.pop() if len(names) == 1 else "a contestant with Clipper"
    told = f"On {first} of {len(found)} tasks, {who} has the best accuracy when the time is over."
    return " ".join([told, *others, _alone(found), _made_by(sources.race)])


def _alone(found: Sequence[Standing]) -> str:
    """On how many tasks Clipper without another framework is best, and which frameworks without Clipper beat it."""
    best, ahead = 0, dict[str, int]()
    for standing in found:
        alone = [entry.mean for entry in standing.entries if entry.contestant.ours and not entry.contestant.peer]
        others = [entry for entry in standing.entries if not entry.contestant.ours]
        if not alone:
            continue
        best += standing.entries[0].mean <= max(alone)
        for entry in others:
            if round(100 * (entry.mean - max(alone)), 1) > 0:
                ahead[entry.contestant.title] = ahead.get(entry.contestant.title, 0) + 1
    behind = "".join(f", and behind {title} on {many}" for title, many in ahead.items())
    return f"Clipper without another framework is best on {best or 'none'}{behind}."


def _made_by(rows: Sequence[Row]) -> str:
    """The seeds and commits of the race's rows, and whether the method has changed since."""
    many = len({row["seed"] for row in rows})
    return f"Means over {many} seed{'s' if many > 1 else ''} ({_made(rows)})."


BLOCKS: dict[str, Callable[[Sources], str]] = {
    "results": lambda sources: results_text(len(sources.ledger), list(sources.tables.values()), _all_claims(sources)),
    "overview": lambda sources: overview(len(sources.ledger), list(sources.tables.values()), _all_claims(sources)),
    "readme": _readme,
    "claims": lambda sources: in_short(_all_claims(sources)),
    "long": _against_the_paper,
    "joint": _joint,
    "confounds": _confounds,
    "chosen-neighbours": _chosen_neighbours,
    "overhead": lambda sources: overhead(sources.measured("train"), sources.entries("ablation")),
    "pruned-pools": lambda sources: pruned_pools(sources.measured("scale")),
    "sent-bytes": lambda sources: sent_bytes(sources.measured("scale")),
    "ranks": lambda sources: ranks(sources.measured("scale")),
    "inferred-pools": lambda sources: inferred_pools(sources.measured("scale")),
    "race": _race,
    "race-summary": _race_summary,
    "zoo": _zoo,
    "ablation": _ablation,
    "clips": _tasks("mugen"),
    "scenes": _tasks("vqar"),
    **{
        name: _tasks(name)
        for name in ("addition", "formulas", "shortcuts", "long-sum", "sudoku", "bags", "proportions")
    },
}
"""All blocks by name, and how to write them."""
