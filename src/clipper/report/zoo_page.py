"""A page for the zoo, many kinds of pools: which promises joint inference keeps, and the figures of every line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clipper.benchmarks.statistics import percent
from clipper.benchmarks.zoo_summary import Promise, promises, summarise
from clipper.files import Row
from clipper.report.figures import comparison_figure
from clipper.report.page import write_page
from clipper.training.environment import UNKNOWN

LINE_COLUMNS = [
    "line", "verdicts", "labels right", "lowest", "gap", "gold kept", "lowest", "candidates kept", "seconds",
    "EM: labels right", "gold kept", "seconds",
]  # fmt: skip
PROMISE_COLUMNS = ["promise", "", "measured"]
_LEAD = (
    "Each line is a kind of pool: a rule, the data, the number of samples and, in some lines, a disturbance. Means are "
    "over all seeds. Gold labels are used for these figures only."
)
_GROUPS = {
    "joint": "Lines whose labels are identified",
    "ambiguous": "Lines whose labels are identified up to their names",
    "noise": "Lines whose embeddings hold no information",
    None: "Other lines: hard rules, wrong targets, tiny pools, known labels",
}
_MEANINGS = {
    "verdicts": "how many pools have which verdict of joint inference",
    "labels right": "the share of instances whose most probable label is the gold one",
    "gap": "between this share and the one that the posterior expects, its absolute value",
    "gold kept": "samples whose gold labels survive the pruning to 95 % of the probability",
    "candidates kept": "of all candidates, by the same pruning",
    "EM": 'the same pools by expectation maximisation, infer(…, method="em")',
}


def write_zoo_page(rows: Sequence[Row], path: str | Path, *, skipped: Mapping[str, str] | None = None) -> None:
    """Write the page of the zoo's rows; it opens from disk and needs no network.

    Args:
        rows: the rows that `run_zoo` returns.
        path: the file to write; an older page is replaced.
        skipped: the lines that were not run, by name, and why.

    Raises:
        FileError: if the page cannot be written.
    """
    lines = summarise(rows)
    groups = [
        (title, [line_cells(line) for line in lines if line["expects"] == expects])
        for expects, title in _GROUPS.items()
        if any(line["expects"] == expects for line in lines)
    ]
    write_page(
        path,
        "zoo.html",
        title="The zoo: joint inference on many kinds of pools",
        lead=_LEAD,
        promise_columns=PROMISE_COLUMNS,
        promises=[(promise_cells(promise), promise.held) for promise in promises(rows)],
        figure_svg=_figure(rows, lines),
        columns=LINE_COLUMNS,
        groups=groups,
        meanings=_MEANINGS,
        failed=[(f"{row['line']}, seed {row['seed']}", row["error"]) for row in rows if row["error"] is not None],
        skipped=dict(skipped or {}),
        made_by=_made_by(rows),
    )


def promise_cells(promise: Promise) -> list[str]:
    """A promise as the cells of a table."""
    held = {True: "held", False: "missed", None: "–"}[promise.held]
    return [promise.text, held, promise.figure]


def verdicts(line: Mapping[str, Any]) -> str:
    """How many pools of a line have which verdict."""
    return ", ".join(f"{number} {verdict}" for verdict, number in line["verdicts"].items() if number) or "–"


def line_cells(line: Mapping[str, Any]) -> list[str]:
    """The figures of a line as the cells of a table."""
    em = line["em"] or dict.fromkeys(("labels_right", "gold_kept", "seconds"))
    joint = ("labels_right", "labels_right_lowest", "accuracy_gap", "gold_kept", "gold_kept_lowest", "candidates_kept")
    return [
        line["line"],
        verdicts(line),
        *(percent(line[name]) for name in joint),
        _seconds(line["seconds"]),
        percent(em["labels_right"]),
        percent(em["gold_kept"]),
        _seconds(em["seconds"]),
    ]


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _figure(rows: Sequence[Row], lines: Sequence[Mapping[str, Any]]) -> str | None:
    """The figure of labels right, for every line that has something to find."""
    figures = {}
    for line in lines:
        shares = [row["labels_right"] for row in rows if row["line"] == line["line"] and row["error"] is None]
        if shares and line["expects"] != "noise":
            figures[line["line"]] = shares, (line["em"] or {}).get("labels_right")
    return comparison_figure(figures, "labels right, %") if figures else None


def _made_by(rows: Sequence[Row]) -> list[str]:
    """The commits that the rows were measured at."""
    return sorted({row["commit"] for row in rows} - {None, UNKNOWN})
