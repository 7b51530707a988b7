"""label: from images or embeddings, and a fact about each sample, to a table of labels."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from clipper.arguments import as_list, as_tensor, shown
from clipper.candidates import CandidateSet
from clipper.candidates.base import check_any_possible, must_be_candidates
from clipper.errors import InputError, require
from clipper.files import checked_path
from clipper.labelling.label_files import FORMATS, METADATA, write_labels
from clipper.proximity import Encoder, Outlines, ProximityGraph, embed
from clipper.pruning import Posterior, infer
from clipper.pruning.graphs import graph_of
from clipper.pruning.joint import NEIGHBOURS
from clipper.pruning.joint.posterior import INFORMATIVE

_NOT_CSV = {
    **dict.fromkeys([ending for ending, kind in FORMATS.items() if kind != "csv"], "Labels.write"),
    **dict.fromkeys([".xlsx", ".xls", ".ods"], "Labels.to_pandas().to_excel"),
    **dict.fromkeys([".json", ".jsonl"], "Labels.to_pandas().to_json"),
}
"""Endings of files that are no CSV, and what writes such files."""
FEW = 20
"""With fewer samples, chance explains most results."""
VERDICTS = {
    "joint": "You can use the labels: targets that were hidden during the search confirm them.",
    "ambiguous": "Clipper found which inputs have the same label, but several ways to name these labels fit all "
    "targets. Some known labels, or more samples, decide which one is true.",
    "unsettled": "Do not rely on the labels: hidden targets confirm them only in part. More time, more samples, a "
    "better encoder or some known labels may help.",
    "uninformative": "Do not use the labels: similar inputs say nothing about these targets. Try another encoder, and "
    "check that the targets belong to their samples.",
}
"""What each verdict means for the user of the labels."""


MISFIT = "targets that contradict them belong to inputs that look alike; perhaps a class is missing: allow one more"
"""Why labels are unreliable if `Verification.misfit` is large."""


def is_reliable(verdict: str) -> bool:
    """Whether the labels, and how many of them are expected to be right, can be relied on.

    Examples:
        >>> is_reliable("ambiguous"), is_reliable("unsettled")
        (True, False)
    """
    return verdict in INFORMATIVE


def meaning_of(verdict: str, reason: str = "", samples: int = FEW) -> str:
    """What a verdict means for the user of the labels, and what to do.

    Args:
        verdict: the verdict.
        reason: why the labels are unreliable, if that is known, and what to check first.
        samples: how many samples there are; with less than `FEW`, more samples are the first thing to get.

    Examples:
        >>> meaning_of("unsettled", "3 of 9 targets cannot come from 5 labels; check --classes")
        'Do not rely on the labels: 3 of 9 targets cannot come from 5 labels; check --classes.'
    """
    if reason and not is_reliable(verdict):
        return f"{VERDICTS[verdict].partition(':')[0]}: {reason}."
    if samples < FEW and verdict != "joint":
        first = re.split(r"[:.] ", VERDICTS[verdict])[0]
        return f"{first}. {samples} samples are seldom enough: add samples first."
    return VERDICTS[verdict]


@dataclass(frozen=True, eq=False)
class Labels:
    """A label for each instance, its probability, and a verdict: whether to rely on the labels. `label` returns it.

    Attributes:
        posterior: the probabilities of all candidates, from which the labels follow.
        label_names: the names of the labels, one for each of `c`; None if they have no names.
        sample_columns: more columns of the table by name, a value for each sample, such as an `id`.
        slot_columns: more columns by name, a row for each sample with a value for each slot, such as file names.
        details: more metadata to store with the table; it must be JSON.
    """

    posterior: Posterior[CandidateSet]
    label_names: Sequence[str] | None = None
    sample_columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    slot_columns: Mapping[str, Sequence[Sequence[Any]]] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_names(self.label_names, self.posterior.candidates.classes)

    @property
    def verdict(self) -> str:
        """Whether to rely on the labels: "joint", "ambiguous", "unsettled" or "uninformative", see `VERDICTS`."""
        return self.posterior.verdict

    @property
    def expected_accuracy(self) -> float:
        """The expected share of right labels, estimated without gold labels."""
        return self.posterior.expected_accuracy

    def to_arrow(self) -> pa.Table:
        """The labels as a table with a row per instance: sample, slot, label, probability, second, suspicion, status.

        `second` is the second most probable label, null if there is no other, `suspicion` the probability that the
        sample's target is wrong. The label is never missing. `status` is "ok", or the reason to doubt the label:
        "unsure" (a probability below 0.9), "wrong target", or the verdict if it is not "joint". The metadata of the
        schema contain the verdict.

        Returns:
            A `pyarrow.Table`.
        """
        table = self.posterior.to_arrow()
        sample, slot = (table[name].to_pylist() for name in ("sample", "slot"))
        for place, (name, values) in enumerate(self.sample_columns.items(), start=1):
            table = table.add_column(place, name, pa.array([values[i] for i in sample]))
        place = table.column_names.index("slot") + 1
        for name, rows in self.slot_columns.items():
            table = table.add_column(place, name, pa.array([rows[i][j] for i, j in zip(sample, slot, strict=True)]))
        if self.label_names is not None:
            for name, after in (("name", "label"), ("second_name", "second")):
                names = [None if y is None else str(self.label_names[y]) for y in table[after].to_pylist()]
                named = pa.array(names, pa.string())
                table = table.add_column(table.column_names.index(after) + 1, name, named)
        return table.replace_schema_metadata({METADATA: json.dumps(self._metadata(), ensure_ascii=False)})

    def _metadata(self) -> dict[str, Any]:
        return {"verdict": self.verdict, "expected_accuracy": self.expected_accuracy, **self.details}

    def to_pandas(self) -> Any:
        """The table of `to_arrow` as a `pandas.DataFrame`; needs pandas.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        require("pandas", extra="pandas")
        return self.to_arrow().to_pandas()

    def to_csv(self, path: str | Path, *, replace: bool = False) -> None:
        """Write the table as CSV. The name may have any ending except those of other formats, such as .xlsx.

        Args:
            path: the file to write; its folder is created if it is missing.
            replace: whether to overwrite an existing file.

        Raises:
            FileError: if the file exists or cannot be written.
            InputError: if the ending of its name is that of another format.
        """
        place = checked_path(path)
        if (writer := _NOT_CSV.get(place.suffix.lower())) is not None:
            raise InputError(
                f"expected the name of a CSV file, such as {place.stem}.csv, got {place.name!r}; for {place.suffix} "
                f"use {writer}(…)"
            )
        write_labels(self.to_arrow(), path, replace=replace, kind="csv")

    def write(self, path: str | Path, *, replace: bool = False) -> None:
        """Write the table to a file whose name ends in .csv, .parquet or .arrow. The file is never half-written.

        Args:
            path: the file to write; its folder is created if it is missing.
            replace: whether to overwrite an existing file.

        Raises:
            FileError: if the file exists or cannot be written.
            InputError: if its name has another ending.
        """
        write_labels(self.to_arrow(), path, replace=replace)

    def __repr__(self) -> str:
        right = f", {self.expected_accuracy:.0%} expected to be right" if is_reliable(self.verdict) else ""
        return f"Labels({self.posterior.candidates.samples:,} samples, {self.verdict}{right})"


def label(
    inputs: Tensor | ProximityGraph,
    candidates: CandidateSet,
    known: Tensor | None = None,
    wrong: float | None = None,
    encoder: Encoder | None = None,
    *,
    label_names: Sequence[str] | None = None,
    deadline: float | None = None,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
    previous: Labels | None = None,
) -> Labels:
    """Label every input, from a fact about each sample and from which inputs look alike.

    Args:
        inputs: images `(n, m, channels, height, width)`, bytes or floats; or embeddings `(n, m, d)` of anything; or a
            `ProximityGraph`. Unused slots may hold anything.
        candidates: the possible labels of each sample, for example from `Candidates.from_rule`.
        known: labels that you know, `(n, m)`, -1 elsewhere.
        wrong: the share of wrong targets; estimated if None, 0 if all are right.
        encoder: from images `(instances, channels, height, width)` to embeddings; `Outlines()` if not given. With an
            encoder, inputs of any shape `(n, m, …)` are encoded.
        label_names: the names of the labels, one for each.
        deadline: seconds after which no new round of the search begins.
        seed: the seed of everything that is random.
        progress: called with the share of the work that is done.
        previous: earlier labels of the same samples. If more labels are known now, the search continues from these,
            which takes less time.

    Returns:
        The labels, with probabilities and a verdict; `to_pandas` and `to_arrow` return a table, `to_csv` and `write`
        write one.

    Raises:
        InputError: the arguments do not fit together.

    Examples:
        >>> from clipper import Candidates
        >>> candidates = Candidates.from_rule(sum, targets=[3, 1, 4], slots=2, classes=3)
        >>> labels = label(torch.rand(3, 2, 1, 8, 8), candidates)
        >>> labels.to_arrow().num_rows, labels.verdict
        (6, 'uninformative')
    """
    check_any_possible(must_be_candidates(candidates))
    _check_names(label_names, candidates.classes)
    near = inputs if isinstance(inputs, ProximityGraph) else embeddings_of(inputs, candidates, encoder)
    graph = graph_of(candidates, near, NEIGHBOURS)
    if previous is not None and not isinstance(previous, Labels):
        raise InputError(f"expected previous to be Labels of the same samples, got {shown(previous)}")
    posterior = infer(
        candidates, graph, known=known, wrong=wrong, deadline=deadline, seed=seed, progress=progress,
        previous=None if previous is None else previous.posterior,
    )  # fmt: skip
    return Labels(posterior, label_names)


def _check_names(names: object, classes: int) -> None:
    """The names of labels must be a sequence of `classes` different names; None for no names."""
    if names is None:
        return
    if isinstance(names, Set) or not hasattr(names, "__len__"):
        raise InputError(f"expected label names as a list, one for each label in order, got {shown(names)}")
    found = [str(name) for name in as_list(names, "label names, one for each label in order,")]
    if len(found) != classes:
        raise InputError(f"expected {classes} label names, one for each label, got {len(found)}")
    if len(set(found)) < len(found):
        twice = next(name for i, name in enumerate(found) if name in found[:i])
        raise InputError(f"expected a different name for each label, got {shown(twice)} twice; rename one of them")


def embeddings_of(inputs: object, candidates: CandidateSet, encoder: Encoder | None) -> Tensor:
    """Embeddings `(n, m, d)`: the inputs themselves, or the output of an encoder, computed in batches.

    Args:
        inputs: images `(n, m, channels, height, width)` or `(n, m, height, width)`, or embeddings `(n, m, d)`.
        candidates: the possible labels of each sample.
        encoder: encodes inputs of any shape `(n, m, …)`; if None, `Outlines()` encodes images.

    Raises:
        InputError: the inputs do not fit the candidates.
    """
    values = as_tensor(inputs, "inputs (samples, slots, …)")
    n, m = candidates.samples, candidates.slots
    if values.ndim < 3 or tuple(values.shape[:2]) != (n, m):
        raise InputError(
            f"expected images ({n}, {m}, channels, height, width) or embeddings ({n}, {m}, d) for the candidates, "
            f"got {tuple(values.shape)}"
        )
    if values.ndim == 3 and encoder is None:
        return values if values.is_floating_point() else values.float()
    if values.ndim == 4 and encoder is None:
        values = values.unsqueeze(2)  # images without channels
    if not values.is_floating_point():
        values = values.float() / (255 if values.dtype == torch.uint8 else 1)
    return embed(encoder or Outlines(), values)
