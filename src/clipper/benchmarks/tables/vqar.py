"""Table 6: names and relations of VQAR's objects, from a class and a relation that each is known to have."""

from __future__ import annotations

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.tables.layout import Column, Measure, Row, Table

EPOCHS = 30
"""The paper's batches of 512 with small steps make a hundred steps of a thousand samples; here are 480 larger ones."""
MEASURES: tuple[Measure, ...] = ("accuracy", "name", "rel", "retained", "gold")
SIZES = ((50, 1000), (100, 1000), (100, 5000))
"""Names and samples of the paper's columns."""
_PAPER = {
    "scallop": [(46.58, 19.93), (35.6, 12.62), (37.98, 13.94)],
    "scallop + paper": [(48.08, 22.41), (36.17, 12.55), (39.70, 14.32)],
}
"""Name and relation accuracy of one run each, on VQAR's own scenes."""
_NEAR = "neighbours by features and boxes, in the whole pool, before training"
_NOTES = {
    "paper": f"the printed program, {_NEAR}",
    "exact": f"the stated problem, {_NEAR}",
    "joint": f"the whole pool decides, {_NEAR}",
    "gold": "the ceiling: trained on the gold labels of the same objects and pairs",
}


def _column(data: str, names: int, samples: int) -> Column:
    base = RunConfig(
        rule="vqar", data=data, slots=3, names=names, samples=samples, epochs=EPOCHS, evaluate_every=EPOCHS // 3
    )
    return Column(column_name(base), base)


def column_name(config: RunConfig) -> str:
    """What a task is called, with whose scenes it is about."""
    whose = "generated scenes" if config.data == "scenes" else "VQAR"
    return f"{whose}, {config.names} names, n={config.samples:,}"


def _rows(engine: str) -> list[Row]:
    """The encoder is frozen, and every row that prunes sees the same edges."""
    frozen = {"engine": engine, "encoder": "features", "when": "once"}
    pruned = [Row(engine, name, {**frozen, "objective": name}) for name in ("paper", "exact", "joint", "random")]
    return [Row(engine, "none", {"engine": engine, "objective": "none"}), *pruned]


def _table(data: str) -> Table:
    columns = tuple(_column(data, names, samples) for names, samples in SIZES)
    whose = "generated scenes in the form of VQAR's" if data == "scenes" else "VQAR"
    return Table(
        "vqar",
        f"Table 6: name and relation accuracy on {whose}",
        (
            *_rows("semantic"),
            *_rows("scallop"),
            Row("gold labels", "none", {"engine": "semantic", "objective": "gold"}),
        ),
        columns,
        {
            (row, column.name): {"name": (name, 0.0), "rel": (relation, 0.0)}
            for row, figures in _PAPER.items()
            for column, (name, relation) in zip(columns, figures, strict=True)
        },
        MEASURES,
        seeds=3,
        notes=_NOTES,
        remark="The paper's figures are one run each, on VQAR's own scenes, and say nothing of generated ones."
        if data == "scenes"
        else "The paper's figures are one run each.",
    )


VQAR, GENERATED = _table("vqar"), _table("scenes")
