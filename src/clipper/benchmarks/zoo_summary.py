"""Summary of the rows of the zoo: figures by line, and which promises hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from clipper.benchmarks.statistics import mean_or_none
from clipper.files import Row

VERDICTS = ("joint", "ambiguous", "unsettled", "uninformative")
GOLD_KEPT, GOLD_KEPT_IN_A_POOL, LARGE = 0.93, 0.85, 60
"""The promised shares of gold labels kept: by a line on average, and by each pool of at least `LARGE` samples."""
FALSE_ALARMS = 0.02
"""The share of pools without information that may get the verdict "joint"."""
NINE_IN_TEN = 0.9
"""The share of pools for which a promise about most of them holds."""
LABELS_RIGHT = 0.95
"""The promised share of labels right in a pool that identifies its labels."""
GAP = 0.05
"""The largest promised difference between the accuracy that a posterior expects, and its accuracy."""
WRONG = {"wrong-5": (0.965, 0.97), "wrong-10": (0.95, None)}
"""By disturbance, the promised share of labels right and AUC of the suspicion, for SUM-3 on average."""

_NAMED = 5
"""The most lines that break a promise that are listed by name; of the others, only the number is given."""


@dataclass(frozen=True)
class Promise:
    """A promise of joint inference, and whether it held.

    Attributes:
        text: the promise.
        held: whether it held; None if no row tests it.
        figure: what was measured.
    """

    text: str
    held: bool | None
    figure: str


def summarise(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The figures of each line over its seeds: means, and the lowest value for some.

    Args:
        rows: the rows that `run_zoo` returns.

    Returns:
        A dictionary for each line, in the order of the rows; None for figures that no row has.
    """
    return [
        _line(name, [row for row in rows if row["line"] == name]) for name in dict.fromkeys(r["line"] for r in rows)
    ]


def _line(name: str, rows: Sequence[Row]) -> dict[str, Any]:
    em = [row["em"] for row in rows if row.get("em")]
    gaps = [abs(row["expected_accuracy"] - row["labels_right"]) for row in rows if _has(row, "expected_accuracy")]
    return {
        "line": name,
        "expects": rows[0]["settings"]["expects"],
        "pools": len(rows),
        "failed": sum(row["error"] is not None for row in rows),
        "verdicts": {verdict: sum(row.get("verdict") == verdict for row in rows) for verdict in VERDICTS},
        "labels_right": mean_or_none(_values(rows, "labels_right")),
        "labels_right_lowest": min(_values(rows, "labels_right"), default=None),
        "accuracy_gap": mean_or_none(gaps),
        "gold_kept": mean_or_none(_values(rows, "gold_kept")),
        "gold_kept_lowest": min(_values(rows, "gold_kept"), default=None),
        "candidates_kept": mean_or_none(_values(rows, "candidates_kept")),
        "gold_naming": mean_or_none(_values(rows, "gold_naming")),
        "suspicion_auc": mean_or_none(_values(rows, "suspicion_auc")),
        "seconds": mean_or_none(_values(rows, "seconds")),
        "em": {key: mean_or_none(_values(em, key)) for key in ("labels_right", "gold_kept", "seconds")} if em else None,
    }


def promises(rows: Sequence[Row]) -> list[Promise]:
    """Which promises hold in the rows; a pool that failed breaks all of them.

    Examples:
        >>> [promise.held for promise in promises([])][:2]
        [None, None]
    """
    lines = summarise(rows)
    noise, joint, ambiguous, misfit = (
        [r for r in rows if r["settings"]["expects"] == e] for e in ("noise", "joint", "ambiguous", "misfit")
    )
    called = [row for row in rows if row.get("verdict") == "joint" and _has(row, "expected_accuracy")]
    return [
        _share("every pool can be run", [row for row in rows if row["error"] is None], rows, least=1),
        _lowest(
            f"every line keeps the gold labels of {_percent(GOLD_KEPT)} of its samples on average",
            {line["line"]: line["gold_kept"] for line in lines if line["gold_kept"] is not None},
            GOLD_KEPT,
        ),
        _lowest(
            f"every pool of {LARGE} samples or more keeps those of {_percent(GOLD_KEPT_IN_A_POOL)}",
            {
                f"{row['line']}, seed {row['seed']}": row["gold_kept"]
                for row in rows
                if row["settings"]["samples"] >= LARGE and _has(row, "gold_kept")
            },
            GOLD_KEPT_IN_A_POOL,
        ),
        _share(
            f"at most {_percent(FALSE_ALARMS)} of the pools without information are called joint",
            [row for row in noise if row.get("verdict") == "joint"],
            noise,
            most=FALSE_ALARMS,
        ),
        _by_line(
            "a class is missing: nine pools in ten of each line are not called joint",
            misfit,
            lambda row: row["error"] is None and row["verdict"] != "joint",
        ),
        _by_line(
            f"identified: nine pools in ten of each line are joint with {_percent(LABELS_RIGHT)} of the labels right",
            joint,
            lambda row: row.get("verdict") == "joint" and row["labels_right"] >= LABELS_RIGHT,
        ),
        _by_line(
            "ambiguous: nine pools in ten of each line are called so, with the gold naming among the namings",
            ambiguous,
            lambda row: row.get("verdict") == "ambiguous" and bool(row["gold_naming"]),
        ),
        _lowest(
            "ambiguous: at least half of the candidates go, on average over a line's pools",
            {
                line["line"]: 1 - line["candidates_kept"]
                for line in lines
                if line["expects"] == "ambiguous" and line["candidates_kept"] is not None
            },
            0.5,
        ),
        _share(
            f"the expected accuracy is within {100 * GAP:.0f} points in nine in ten of the pools called joint",
            [row for row in called if abs(row["expected_accuracy"] - row["labels_right"]) <= GAP],
            called,
            least=NINE_IN_TEN,
        ),
        *_wrong_targets(rows),
    ]


def _wrong_targets(rows: Sequence[Row]) -> list[Promise]:
    found = []
    for trouble, (right, area) in WRONG.items():
        own = [
            row
            for row in rows
            if row["settings"]["trouble"] == trouble and row["settings"]["rule"] == "sum-3" and row["error"] is None
        ]
        share = trouble.removeprefix("wrong-") + " % wrong targets on SUM-3"
        found.append(_at_least(f"{share}: {_percent(right)} of the labels right", _values(own, "labels_right"), right))
        if area is not None:
            found.append(_at_least(f"{share}: the suspicion's AUC is {area}", _values(own, "suspicion_auc"), area))
    return found


def _at_least(text: str, values: Sequence[float], least: float) -> Promise:
    mean = mean_or_none(values)
    return Promise(text, None, "not measured") if mean is None else Promise(text, mean >= least, f"{mean:.3f}")


def _lowest(text: str, figures: dict[str, float], least: float) -> Promise:
    if not figures:
        return Promise(text, None, "not measured")
    whose = min(figures, key=lambda name: figures[name])
    missed = sum(value < least for value in figures.values())
    lowest = f"lowest {_percent(figures[whose])} ({whose})"
    return Promise(text, not missed, f"{missed} of {len(figures)} miss it, {lowest}" if missed else lowest)


def _share(text: str, chosen: Sequence[Row], rows: Sequence[Row], *, least: float = 0, most: float = 1) -> Promise:
    if not rows:
        return Promise(text, None, "not measured")
    share = len(chosen) / len(rows)
    return Promise(text, least <= share <= most, f"{len(chosen):,} of {len(rows):,} ({_percent(share)})")


def _by_line(text: str, rows: Sequence[Row], good: Callable[[Row], bool]) -> Promise:
    """Whether nine in ten pools of every line are good."""
    if not rows:
        return Promise(text, None, "not measured")
    counts: dict[str, list[bool]] = {}
    for row in rows:
        counts.setdefault(row["line"], []).append(row["error"] is None and good(row))
    missed = [f"{line} ({sum(c)} of {len(c)})" for line, c in counts.items() if sum(c) < NINE_IN_TEN * len(c)]
    held = f"{len(counts) - len(missed)} of {len(counts)} lines"
    if len(missed) > _NAMED:
        missed = [*missed[:_NAMED], f"{len(missed) - _NAMED} more"]
    return Promise(text, not missed, f"{held}; missed by {', '.join(missed)}" if missed else held)


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _has(row: Row, name: str) -> bool:
    return row.get(name) is not None


def _values(rows: Sequence[Row], name: str) -> list[float]:
    return [float(row[name]) for row in rows if _has(row, name)]
