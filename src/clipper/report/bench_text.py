"""Measurements of `clipper bench` as Markdown tables, and the paper's claims about time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clipper.benchmarks.statistics import percent
from clipper.benchmarks.tables import CellResult
from clipper.report.claims import INCOMPARABLE, NOT_RUN, NOTHING, Claim
from clipper.report.table_text import markdown_table, papers

Measurement = Mapping[str, Any]
"""A measurement, as `clipper.benchmarks.measurements` gives it."""
SHARE = "pruning_share"
SENT = {"labels_in": "support", "neighbours": "search", "pruned_in": "pruning"}
"""The steps of pruning in several processes, by what measurements call them."""


def pruned_pools(rows: Sequence[Measurement]) -> str:
    """A table of pools of growing size that were pruned from file to file: seconds, memory and recall."""
    own = _of_stage(rows, "prune")
    cells = [
        [
            f"{found['instances']:,}",
            _processes(row),
            f"{found['candidates']:,}",
            found["method"],
            _rounded(found["seconds"]),
            _rounded(found["index_seconds"]) if found["index_seconds"] else NOTHING,
            _rounded(found["search_seconds"] - found["index_seconds"]),
            _gigabytes(found["peak_gigabytes"]),
            _recall(found["recall"]),
        ]
        for row in own
        for found in [row["figures"]]
    ]
    heads = [
        "instances", "processes", "candidates", "method", "seconds", "of which to build the index",
        "of which search", "peak of memory", "recall",
    ]  # fmt: skip
    return f"{markdown_table(heads, cells)}\n{measured_on(own)}" if own else "Not run."


def inferred_pools(rows: Sequence[Measurement]) -> str:
    """A table of pools of growing size whose labels were inferred in one process."""
    own = [row for row in _of_stage(rows, "infer") if "ranks" not in row["figures"]]
    cells = [
        [
            f"{found['instances']:,}",
            found["method"],
            _rounded(found["search_seconds"]),
            _recall(found["recall"]),
            _rounded(found["inference_processor_seconds"]),
            _gigabytes(found["peak_gigabytes"]),
            percent(found["right"]),
            found["verdict"],
        ]
        for found in (row["figures"] for row in own)
    ]
    heads = [
        "instances", "search", "seconds of search", "recall", "processor seconds of inference", "peak of memory",
        "labels right", "verdict",
    ]  # fmt: skip
    return f"{markdown_table(heads, cells)}\n{measured_on(own)}" if own else "Not run."


def sent_bytes(rows: Sequence[Measurement]) -> str:
    """A table of what several processes sent to each other while they pruned pools, in bytes per instance."""
    own = [row for row in _of_stage(rows, "prune") if "bytes_sent" in row["figures"]]
    cells = [
        [
            f"{row['figures']['instances']:,}",
            _processes(row),
            *(f"{sent / row['figures']['instances']:.0f}" for name in SENT for sent in counts[name]),
        ]
        for row in own
        for counts in [row["figures"]["bytes_sent"]]
    ]
    heads = [
        "instances",
        "processes",
        *(f"{step}: {way}" for step in SENT.values() for way in ("to workers", "to your process")),
    ]
    return f"{markdown_table(heads, cells)}\n{measured_on(own)}" if own else "Not run."


def ranks(rows: Sequence[Measurement]) -> str:
    """A table of pools that several ranks inferred together, each beside the same pool in one process."""
    shared = [row for row in _of_stage(rows, "infer") if "ranks" in row["figures"]]
    sizes = {row["figures"]["instances"] for row in shared}
    own = [row for row in _of_stage(rows, "infer") if row["figures"]["instances"] in sizes]
    cells = []
    for row in sorted(own, key=lambda row: (row["figures"]["instances"], row["figures"].get("ranks", 1))):
        found = row["figures"]
        alone = found.get("search_seconds", 0.0) + found.get("inference_processor_seconds", 0.0)
        cells.append(
            [
                f"{found['instances']:,}",
                str(found.get("ranks", 1)),
                _rounded(found.get("processor_seconds", alone)),
                _gigabytes(found["peak_gigabytes"]),
                f"{found['bytes_sent'] / 1e6:,.0f} MB" if "ranks" in found else NOTHING,
                percent(found["right"]),
                found["verdict"],
            ]
        )
    heads = [
        "instances", "ranks", "seconds of a rank (search and inference)", "peak of memory of a rank", "sent by a rank",
        "labels right", "verdict",
    ]  # fmt: skip
    return f"{markdown_table(heads, cells)}\n{measured_on(own)}" if shared else "Not run."


def overhead(rows: Sequence[Measurement], entries: Sequence[CellResult]) -> str:
    """The share of the training time that pruning takes, beside the paper's.

    Args:
        rows: the measurements of `clipper bench train`.
        entries: the cells of the paper's table of batch sizes.
    """
    if not rows:
        return "Not run."
    published = _published(entries)
    cells = []
    for row in rows:
        found, engine = row["figures"], row["settings"]["engine"]
        if found["objective"] == "none":
            continue
        key = engine, found["batch"], found["encoder"]
        theirs = [papers(entry, SHARE) for entry in published.get(key, []) if found["objective"] == "paper"]
        cells.append(
            [
                f"{engine}, batch {found['batch']}",
                found["encoder"],
                found["objective"],
                f"{found['milliseconds_per_batch']:.1f}",
                f"{found['pruning_milliseconds_per_batch']:.2f}",
                f"{100 * found[SHARE]:.1f}",
                ", ".join(theirs) or NOTHING,
            ]
        )
    heads = [
        "loss", "encoder", "objective", "ms per step", "of which pruning", "share, %", "share, % (published)",
    ]  # fmt: skip
    return f"{markdown_table(heads, cells)}\n{measured_on(rows)}"


def overhead_claims(rows: Sequence[Measurement], entries: Sequence[CellResult]) -> list[Claim]:
    """The paper's claims about pruning's share of the training time; arguments as for `overhead`.

    They cannot be compared: the paper solves an integer program beside a GPU, and has other frozen encoders.
    """
    shares = {
        (row["settings"]["engine"], row["figures"]["batch"], row["figures"]["encoder"]): 100 * row["figures"][SHARE]
        for row in rows
        if row["figures"]["objective"] == "paper"
    }
    claims = []
    for key, theirs in _published(entries).items():
        for entry in theirs:
            paper, share = entry.published[SHARE], shares.get(key)
            ours, verdict = (NOTHING, NOT_RUN) if share is None else (f"{share:.1f}", INCOMPARABLE)
            what = f"pruning, share of the time: {entry.place.row.name}, {entry.place.column.name}"
            claims.append(Claim(what, f"{paper[0]:.1f}", ours, verdict, "overhead"))
    return claims


def measured_on(rows: Sequence[Measurement]) -> str:
    """A sentence about the machine and the code of measurements."""
    commits = ", ".join(sorted({row["commit"] for row in rows}))
    threads = ", ".join(map(str, sorted({row["versions"]["threads"] for row in rows})))
    return f"Commit {commits}; threads: {threads}; {load_of(rows)}."


def load_of(rows: Sequence[Measurement]) -> str:
    """The load of the machine in words.

    Examples:
        >>> load_of([{"load": {"average": 1.0, "cores": 2.0}}, {"load": {"average": 3.0, "cores": 2.0}}])
        'a load of 1.0 to 3.0 on 2 cores'
    """
    loads = [row["load"] for row in rows if row["load"]]
    if not loads:
        return "an unknown load"
    return f"a load of {_span([load['average'] for load in loads])} on {loads[0]['cores']:.0f} cores"


def _published(entries: Sequence[CellResult]) -> dict[tuple[str, int, str], list[CellResult]]:
    """The cells with a published share of the time, by loss, batch size, and whether the encoder is trained."""
    found: dict[tuple[str, int, str], list[CellResult]] = {}
    for entry in entries:
        if SHARE in entry.published:
            encoder = "trainable" if entry.place.config.encoder == "trainable" else "frozen"
            found.setdefault((entry.place.row.engine, entry.place.config.batch, encoder), []).append(entry)
    return found


def _of_stage(rows: Sequence[Measurement], stage: str) -> list[Measurement]:
    return sorted((r for r in rows if r["figures"]["stage"] == stage), key=lambda row: row["figures"]["instances"])


def _processes(row: Measurement) -> str:
    """How many processes pruned, and whether they belong to Ray."""
    workers, engine = row["figures"].get("workers", 1), row["figures"].get("engine")
    return f"{workers}, Ray" if engine == "ray" else str(workers)


def _rounded(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds < 10 else f"{seconds:,.0f}"


def _gigabytes(peak: float | None) -> str:
    return NOTHING if peak is None else f"{peak:.2f} GB"


def _recall(recall: float | None) -> str:
    return NOTHING if recall is None else f"{recall:.3g}"


def _span(values: Sequence[float]) -> str:
    low, high = f"{min(values):.1f}", f"{max(values):.1f}"
    return low if low == high else f"{low} to {high}"
