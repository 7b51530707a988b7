"""A page that shows labels: the verdict, the questions, suspicious samples, and a contact sheet of every class."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from clipper.benchmarks.statistics import percent
from clipper.labelling.label import is_reliable, meaning_of
from clipper.labelling.label_files import METADATA
from clipper.report.page import write_page
from clipper.training.inspection import tile_sheet

MOST = 60
"""The most instances of a class that are shown: those with the least probable labels."""
_DOUBT = 0.9
"""Below this probability a label is marked."""

Pictures = Callable[[Sequence[int], Sequence[int]], "np.ndarray[Any, np.dtype[np.uint8]] | None"]
"""From the samples and slots of some instances to small pictures of them; None if there are none."""


def write_label_page(table: pa.Table, path: str | Path, pictures: Pictures | None = None) -> None:
    """Write a page of labels; it opens from disk and needs no network.

    Args:
        table: the labels as `Labels.to_arrow` gives them, with their metadata.
        path: the file to write; an older page is replaced.
        pictures: small pictures of the instances that are shown; without them, the page shows their names.

    Raises:
        FileError: if the page cannot be written.
    """
    about = json.loads((table.schema.metadata or {})[METADATA])
    rows = table.to_pylist()
    at = {(row["sample"], row["slot"]): row for row in rows}
    questions = [at[sample, slot] for sample, slot, _ in about.get("questions", []) if (sample, slot) in at]
    suspicious = [
        {**own, "rows": [row for (sample, _), row in at.items() if sample == own["sample"]]}
        for own in about.get("suspicious", [])
    ]
    groups, samples = _groups(rows), len({sample for sample, _ in at})
    shown = [*questions, *(row for own in suspicious for row in own["rows"])]
    shown += [row for group in groups for row in group["rows"]]
    names = _names(rows, about.get("classes", 0))
    write_page(
        path,
        "labels.html",
        title=_title(about, len(rows)),
        verdict=about["verdict"],
        meaning=meaning_of(about["verdict"], about.get("reason", ""), samples),
        figures=_figures(about, rows),
        questions=[{**_tile(row), "known": target} for row, target in _with_targets(questions, about)],
        suspicious=[_suspicious(own, names) for own in suspicious],
        groups=[{**group, "rows": [_tile(row) for row in group["rows"]]} for group in groups],
        sheet=_sheet_of(shown, pictures),
    )


def _title(about: dict[str, Any], labels: int) -> str:
    if not is_reliable(about["verdict"]):
        return f"{labels:,} labels, not to be relied on"
    right = about["expected_accuracy"]
    share = "nearly all" if right >= 0.9995 else percent(right)
    return f"{labels:,} labels, {share} expected to be right"


def _figures(about: dict[str, Any], rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """The numbers below the verdict, each with its caption."""
    unsure = sum(row["probability"] < _DOUBT for row in rows)
    wrong = len({row["sample"] for row in rows if row["suspicion"] > 1 / 2})
    found = [(percent(about["expected_accuracy"]), "expected to be right")] if is_reliable(about["verdict"]) else []
    found += [
        (f"{len({row['sample'] for row in rows}):,}", "samples"),
        (f"{unsure:,}", f"labels below {_DOUBT:.0%}".replace("%", " %")),
        (f"{wrong:,}", "targets that look wrong"),
    ]
    if about.get("namings", 1) > 1:
        found.append((f"{about['namings']:,}", "ways to name the labels"))
    return found


def _groups(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The instances of each label, the least probable first."""
    groups = []
    for label in sorted({row["label"] for row in rows}):
        own = sorted((row for row in rows if row["label"] == label), key=lambda row: row["probability"])
        groups.append(
            {
                "name": own[0].get("name", str(label)),
                "number": len(own),
                "unsure": sum(row["probability"] < _DOUBT for row in own),
                "rows": own[:MOST],
                "hidden": len(own) - MOST,
                "above": percent(own[MOST - 1]["probability"]) if len(own) > MOST else "",
            }
        )
    return groups


def _tile(row: dict[str, Any]) -> dict[str, Any]:
    """An instance as the page shows it."""
    name = row.get("name", row["label"])
    second = row.get("second_name", row["second"])
    place = f"sample {row.get('id', row['sample'])}, slot {row['slot']}"
    place += f", {row['input']}" if "input" in row else ""
    about = f"{place}: {name} with {percent(row['probability'])}"
    if second is not None:
        about += f"; then {second}"
    if row["suspicion"] > 1 / 2:
        about += "; the target looks wrong"
    return {
        "key": (row["sample"], row["slot"]),
        "label": str(name),
        "second": None if second is None else str(second),
        "probability": percent(row["probability"]),
        "doubtful": row["probability"] < _DOUBT,
        "place": place,
        "about": about,
        "input": str(row.get("input", place)),
    }


def _with_targets(questions: list[dict[str, Any]], about: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """The questions, each with the target of its sample."""
    targets = {(sample, slot): target for sample, slot, target in about.get("questions", [])}
    return [(row, str(targets[row["sample"], row["slot"]])) for row in questions]


def _suspicious(own: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    ways = [" · ".join(names[label] for label in labels) for labels in own["satisfied_by"]]
    rows = own["rows"]
    return {
        "place": f"sample {rows[0].get('id', own['sample'])}" if rows else f"sample {own['sample']}",
        "target": str(own["target"]),
        "rows": [_tile(row) for row in rows],
        "suspicion": percent(rows[0]["suspicion"]) if rows else "",
        "ways": ways,
    }


def _names(rows: list[dict[str, Any]], classes: int) -> list[str]:
    names = [str(label) for label in range(classes)]
    for row in rows:
        if "name" in row:
            names[row["label"]] = row["name"]
        if row.get("second_name") is not None:
            names[row["second"]] = row["second_name"]
    return names


def _sheet_of(shown: list[dict[str, Any]], pictures: Pictures | None) -> dict[str, Any] | None:
    """All pictures in one PNG, and the position of each instance in it."""
    keys = list(dict.fromkeys((row["sample"], row["slot"]) for row in shown))
    tiles = None if pictures is None or not keys else pictures([i for i, _ in keys], [j for _, j in keys])
    if tiles is None:
        return None
    sheet = tile_sheet(tiles)
    scale = max(1, round(56 / max(sheet["width"], sheet["height"])))
    places = [divmod(i, sheet["columns"]) for i in range(len(keys))]
    width, height = scale * sheet["width"], scale * sheet["height"]
    return {
        "png": sheet["png"],
        "width": width,
        "height": height,
        "whole": f"{width * sheet['columns']}px {height * sheet['rows']}px",
        "at": {key: f"-{width * column}px -{height * row}px" for key, (row, column) in zip(keys, places, strict=True)},
    }
