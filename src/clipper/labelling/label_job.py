"""Labelling from file to file: from a table of samples or a file of candidates, and images or embeddings."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clipper import rules
from clipper.arguments import StageProgress, as_tensor, documented, option, real_number, shown, whole_number
from clipper.candidates import Candidates, CandidateSet
from clipper.candidates.program import Sentence
from clipper.candidates.rules import Rule
from clipper.errors import FileError, InputError
from clipper.executors import Executor
from clipper.files import read_from_file, read_text
from clipper.labelling.images import ImageFiles
from clipper.labelling.label import MISFIT, Labels, label
from clipper.labelling.label_files import format_of
from clipper.labelling.sample_table import SampleTable, known_labels, line, read_answers
from clipper.proximity import ProximityGraph, encoder_named
from clipper.proximity.backbones.pretrained import NAMES, WEIGHTLESS
from clipper.proximity.sharded import ShardedSearch
from clipper.pruning.graphs import neighbours_of
from clipper.pruning.joint import NEIGHBOURS
from clipper.pruning.streaming import read_embeddings, read_vectors, scratch_folder

PREDICATE = "label"
"""The predicate that a logic program uses for the label of a slot: `label(a, 7)`."""
_QUESTIONS = 12
"""Number of questions that are stored with the labels."""
_SUSPICIOUS = 50
"""Largest number of suspicious samples that are stored with the labels."""
_MOST_IMPOSSIBLE = 1 / 5
"""Largest share of targets that no labels give: with more of them, the rule or the number of labels must be wrong."""
_PATHS = ("samples", "embeddings", "images", "program", "known")
"""Fields of a job that are paths of its input files."""


@documented
@dataclass(frozen=True)
class LabelJob:
    """The options of `clipper label`: what to label, and how."""

    samples: Path
    output: Path
    embeddings: Path | None = option(
        None,
        "Embeddings instead of images, .npy or Parquet; the slots of the table then hold row numbers of this file.",
        flags=("--embeddings",),
    )
    rule: str | None = option(
        None,
        "How the target follows from the labels: sum, max, count:3, checksum:3,1,7 …; or FILE.py:FUNCTION, which takes "
        "a tuple of labels.",
    )
    program: Path | None = option(
        None, "A logic program instead of a rule; targets are then sentences about label(SLOT, LABEL)."
    )
    classes: int | None = option(None, "Number of different labels; not needed with --label-names.")
    target: str = option("target", "Column of what is known of each sample.")
    slots: str | None = option(
        None, "Columns of the slots, such as a,b,c; default: all columns except target, id and known_…."
    )
    images: Path | None = option(None, "Folder of the image files; default: the folder of the table.")
    encoder: str = option("outlines", "How to compare images: outlines, pixels, blurred, resnet18 …")
    known: Path | None = option(
        None, "Labels that you know: a CSV with sample, slot, label, such as clipper review writes."
    )
    wrong: float | None = option(None, "Share of wrong targets, 0 if all are right; default: estimated.")
    label_names: str | None = option(
        None, "Names of the labels, such as cat,dog,bird, or a text file with a name in each line."
    )
    deadline: float | None = option(
        None, "Seconds after which no new round of the search begins; if one was needed, the verdict is unsettled."
    )
    seed: int = option(0, "Seed of everything that is random.")

    def as_dict(self) -> dict[str, Any]:
        """The job as a dictionary, for the metadata of the labels: paths are relative to the folder of the labels."""
        stored: dict[str, Any] = {name: value for name, value in asdict(self).items() if name != "output"}
        folder = self.output.resolve().parent
        for name in _PATHS:
            if stored[name] is not None:
                stored[name] = Path(os.path.relpath(Path(stored[name]).resolve(), folder)).as_posix()
        if self.rule is not None and ".py:" in self.rule:
            path, _, name = self.rule.rpartition(":")
            stored["rule"] = f"{Path(os.path.relpath(Path(path).resolve(), folder)).as_posix()}:{name}"
        if self.label_names is not None and _is_file(Path(), self.label_names):
            stored["label_names"] = Path(os.path.relpath(Path(self.label_names).resolve(), folder)).as_posix()
        return stored

    @classmethod
    def from_dict(cls, stored: dict[str, Any], output: Path) -> LabelJob:
        """The job that is stored in the metadata of a file of labels.

        Args:
            stored: what `as_dict` returned.
            output: the file of labels.

        Raises:
            FileError: if the metadata contain no job.
        """
        try:
            paths = {name: output.parent / stored[name] for name in _PATHS if stored[name] is not None}
            rule = stored["rule"]
            if rule is not None and ".py:" in rule:
                rule = str(output.parent / rule)
            names = stored["label_names"]
            if names is not None and _is_file(output.parent, names):
                names = str(output.parent / names)
            return cls(**{**stored, **paths, "rule": rule, "label_names": names, "output": output})
        except (KeyError, TypeError) as error:
            raise FileError(f"{output} does not say how its labels were made; run clipper label again") from error


@dataclass(frozen=True, eq=False)
class LabelPool:
    """The samples of a job, read and checked. They can be labelled again when more labels are known.

    Attributes:
        job: the options.
        candidates: the possible labels of each sample.
        known: known labels, `(n, m)`, -1 elsewhere.
        wrong_targets: samples whose target is known to be wrong, `(n,)` bool.
        label_names: the names of the labels, if they have names.
        table: the table of samples; None if the job reads a file of candidates.
        targets: the target of each sample as text; empty if the job reads a file of candidates.
        images: the image files; None if the job reads embeddings.
        place: `(n, m)`: the number of each slot's image, or its row in the file of embeddings; -1 in unused slots.
        impossible: a warning about targets that no labels give; empty if there are none.
    """

    job: LabelJob
    candidates: CandidateSet
    known: Tensor
    wrong_targets: Tensor
    label_names: tuple[str, ...] | None
    table: SampleTable | None
    targets: list[str]
    images: ImageFiles | None
    place: Tensor
    impossible: str = ""

    @classmethod
    def read(cls, job: LabelJob) -> LabelPool:
        """Read and check everything except the pixels of images.

        Args:
            job: the options.

        Raises:
            FileError: if a file is missing or damaged.
            InputError: if the files do not fit together; the message names the line.
        """
        format_of(job.output)
        if job.deadline is not None:
            real_number(job.deadline, "--deadline, in seconds,", least=0)
        if job.wrong is not None:
            real_number(job.wrong, "--wrong, a share,", least=0, below=1)
        if job.embeddings is None or job.encoder not in (*WEIGHTLESS, *NAMES):  # embeddings need no weights
            encoder_named(job.encoder)
        if job.images is not None:
            _check_folder(job.images)
        names = _label_names(job.label_names)
        return _of_candidates(job, names) if _is_candidates(job) else _of_table(job, names)

    def embeddings(self, report: StageProgress = lambda *_: None, executor: Executor | None = None) -> Tensor:
        """The embedding of each instance, `(n, m, d)`: from the file of embeddings, or computed from the images.

        Args:
            report: called after each batch of images with the stage, the number done and the total.
            executor: its processes encode the images; if None, this process does.
        """
        n, m = self.candidates.samples, self.candidates.slots
        if self.images is not None:
            encoder = encoder_named(self.job.encoder)
            cache = self.job.output.with_suffix("")
            vectors = self.images.embeddings(
                encoder, cache, lambda done, total: report("encoding images", done, total), executor
            )
        elif self.table is None:
            assert self.job.embeddings is not None
            return read_embeddings(self.job.embeddings, n, m)
        else:
            assert self.job.embeddings is not None
            vectors = as_tensor(read_vectors(self.job.embeddings), "embeddings")
        if torch.equal(self.place.flatten(), torch.arange(len(vectors))):
            return vectors.view(n, m, -1)
        return vectors[self.place.clamp(min=0).flatten()].view(n, m, -1)

    def labels(
        self, embeddings: Tensor, report: StageProgress = lambda *_: None, known: Tensor | None = None,
        wrong_targets: Tensor | None = None, previous: Labels | None = None, executor: Executor | None = None,
    ) -> Labels:  # fmt: skip
        """Label the samples.

        Args:
            embeddings: of all instances, `(n, m, d)`.
            report: called during the work with the stage, the number done and the total.
            known: more known labels, `(n, m)`, -1 elsewhere; they override those of the job.
            wrong_targets: more samples whose target is wrong, `(n,)` bool.
            previous: earlier labels of these samples to continue from.
            executor: its processes search neighbours; if None, this process does. Inference runs in this process.

        Raises:
            InputError: if a known label is in no candidate of its sample and `job.wrong` is 0.
        """
        all_known = self.known if known is None else torch.where(known >= 0, known, self.known)
        candidates, wrong = self.candidates, self.wrong_targets
        if wrong_targets is not None:
            wrong = wrong | wrong_targets
        if bool(wrong.any()):  # a wrong target leaves its sample without candidates
            allowed = torch.ones(candidates.samples, candidates.slots, candidates.classes, dtype=torch.bool)
            allowed[wrong] = False
            candidates = candidates.narrowed(allowed.flatten(0, 1))
        near = embeddings if executor is None else self._graph(embeddings, executor, report)
        found = label(
            near, candidates, all_known if bool((all_known >= 0).any()) else None, self.job.wrong,
            label_names=self.label_names, deadline=self.job.deadline, seed=self.job.seed,
            progress=lambda share: report("labelling", round(100 * share), 100), previous=previous,
        )  # fmt: skip
        return replace(found, **self._columns(), details=self._details(found))

    def _graph(self, embeddings: Tensor, executor: Executor, report: StageProgress) -> ProximityGraph:
        """The graph that `label` would build, with neighbours found by the processes of an executor."""
        with scratch_folder(self.job.output) as folder:
            return neighbours_of(
                embeddings, self.candidates.kind, self.candidates.kinds, self.candidates.plain, k=NEIGHBOURS,
                search=ShardedSearch(executor, Path(folder)),
                progress=lambda done, total: report("searching neighbours", done, total),
            )  # fmt: skip

    def pictures(self, sample: Sequence[int], slot: Sequence[int]) -> np.ndarray[Any, np.dtype[np.uint8]] | None:
        """Small pictures of some instances, `(k, height, width)` or `(k, height, width, 3)`; None without images."""
        if self.images is None or not len(sample):
            return None
        return self.images.thumbnails(self.place[list(sample), list(slot)].tolist())

    def _columns(self) -> dict[str, Any]:
        if self.table is None:
            return {}
        ids = {} if self.table.ids is None else {"id": self.table.ids}
        return {"sample_columns": ids, "slot_columns": {"input": self.table.cells}}

    def _details(self, labels: Labels) -> dict[str, Any]:
        """Metadata for the report and `clipper review`: the job, questions, and samples with a suspicious target."""
        posterior = labels.posterior
        m = posterior.candidates.slots
        suspicion = posterior.suspicion.nan_to_num(1).cpu()
        doubted = (suspicion > 1 / 2).nonzero()[:, 0]
        doubted = doubted[suspicion[doubted].argsort(descending=True, stable=True)][:_SUSPICIOUS]
        alike = posterior.verification.misfit > posterior.settings.negligible
        return {
            "job": self.job.as_dict(),
            "samples": posterior.candidates.samples,
            "classes": posterior.candidates.classes,
            "wrong": posterior.wrong,
            "namings": len(posterior.namings),
            "reason": self.impossible or (MISFIT if alike else ""),
            "questions": [[i // m, i % m, self._target_text(i // m)] for i in posterior.ask(_QUESTIONS).tolist()],
            "suspicious": [
                {
                    "sample": i,
                    "target": self._target_text(i),
                    "labels": [y for y in posterior.labels[i].tolist() if y >= 0],
                    "satisfied_by": self._satisfying(i, posterior.marginals[i]),
                }
                for i in doubted.tolist()
            ],
        }

    def _target_text(self, sample: int) -> str:
        return self.targets[sample] if self.targets else ""

    def _satisfying(self, sample: int, marginals: Tensor) -> list[list[int]]:
        """Up to three rows of labels that satisfy a sample's target, the most probable by `marginals` first."""
        alone = self.candidates.batch([sample])
        if not bool(alone.possible().all()):
            return []
        best = alone.top_k((marginals[None] + torch.finfo(marginals.dtype).eps).log().to(torch.float32), 3)
        return [[y for y in row if y >= 0] for row in best.labels.tolist()]


def label_files(job: LabelJob, report: StageProgress = lambda *_: None, executor: Executor | None = None) -> Labels:
    """Label the samples of a job. The only file it writes is the cache of embeddings (`ImageFiles.embeddings`).

    Args:
        job: the options.
        report: called during the work with the stage, the number done and the total.
        executor: its processes encode images and search neighbours; if None, this process does.

    Returns:
        The labels; `Labels.write` writes them to a file.

    Raises:
        FileError: if a file is missing or damaged.
        InputError: if the files do not fit together.
    """
    pool = LabelPool.read(job)
    return pool.labels(pool.embeddings(report, executor), report, executor=executor)


def _is_candidates(job: LabelJob) -> bool:
    """Whether the job reads a file of candidates: Parquet without a column of targets."""
    from clipper.candidates.storage import PARQUET, open_parquet, parquet_files

    if job.samples.suffix.lower() not in PARQUET and not job.samples.is_dir():
        return False
    with open_parquet(parquet_files(job.samples)[0]) as file:
        return job.target not in file.schema_arrow.names


def _of_candidates(job: LabelJob, names: tuple[str, ...] | None) -> LabelPool:
    for value, option_name in ((job.rule, "--rule"), (job.program, "--program"), (job.images, "--images")):
        if value is not None:
            raise InputError(
                f"{job.samples} has no column {job.target!r}, so it is read as a file of candidates, where "
                f"{option_name} is not allowed; leave it out, or name the column of targets with --target"
            )
    if job.embeddings is None:
        raise InputError(f"expected a file of embeddings after the candidates {job.samples}; pass its .npy or Parquet")
    candidates = Candidates.read(job.samples, job.classes)
    _check_names(names, candidates.classes)
    read_embeddings(job.embeddings, candidates.samples, candidates.slots)  # refuses a wrong file before the work starts
    lengths = candidates.lengths.tolist()
    known, wrong = _answers(job, lengths, (), candidates.classes, names)
    place = torch.where(candidates.kind >= 0, torch.arange(candidates.kind.numel()).view_as(candidates.kind), -1)
    return LabelPool(job, candidates, known, wrong, names, None, [], None, place)


def _of_table(job: LabelJob, names: tuple[str, ...] | None) -> LabelPool:
    if (job.rule is None) == (job.program is None):
        raise InputError(
            "expected either --rule, how targets follow from labels (sum, max …), or --program, a logic program"
        )
    classes = job.classes if job.classes is not None else None if names is None else len(names)
    if classes is None:
        raise InputError("expected --classes, the number of different labels, or --label-names, their names")
    whole_number(classes, "--classes")
    _check_names(names, classes)
    slots = [] if job.slots is None else [name.strip() for name in job.slots.split(",") if name.strip()]
    table = SampleTable.read(job.samples, slots, job.target)
    candidates = _by_program(job, table, classes, names) if job.program else _by_rule(job, table, classes)
    impossible = _impossible(job, table, candidates)
    known = known_labels(table, job.samples, candidates.slots, classes, names)
    answers, wrong = _answers(job, table.lengths, table.slots, classes, names)
    known = torch.where(answers >= 0, answers, known)
    if job.embeddings is None:
        folder = job.images if job.images is not None else job.samples.parent
        paths = [[folder / cell for cell in row] for row in table.cells]
        _check_files(job, table, folder)
        images = ImageFiles.open(path for row in paths for path in row)
        number = {path: i for i, path in enumerate(images.paths)}
        rows = [[number[path] for path in row] for row in paths]
    else:
        images = None
        rows = _rows(table, job.samples, len(read_vectors(job.embeddings)), job.embeddings)
    place = torch.tensor([row + [-1] * (candidates.slots - len(row)) for row in rows])
    return LabelPool(job, candidates, known, wrong, names, table, table.targets, images, place, impossible)


def _by_rule(job: LabelJob, table: SampleTable, classes: int) -> CandidateSet:
    rule = rule_named(str(job.rule))
    targets = [_target(text, rule, job, i) for i, text in enumerate(table.targets)]
    return rule.candidates(targets, table.lengths, classes, impossible="keep")


def _impossible(job: LabelJob, table: SampleTable, candidates: CandidateSet) -> str:
    """A warning about the targets that no labels give; empty if there are none.

    Raises:
        InputError: if there are too many of them for typing errors.
    """
    impossible = ~candidates.possible()
    if not bool(impossible.any()):
        return ""
    number, samples = int(impossible.sum()), candidates.samples
    options = "--rule and --classes" if job.label_names is None else "--rule and --label-names"
    if number == samples:
        raise InputError(
            f"no target in {job.samples} can come from {candidates.classes} labels by the rule {job.rule}, not even "
            f"the first, {shown(table.targets[0])}; check {options}"
        )
    first = int(impossible.nonzero()[0])
    warning = (
        f"{number:,} of {samples:,} targets cannot come from {candidates.classes} labels by the rule {job.rule}, "
        f"the first is {table.targets[first]} in {line(job.samples, first)}; check {options}"
    )
    if number > max(_MOST_IMPOSSIBLE, job.wrong or 0) * samples:
        raise InputError(f"{warning}. If so many targets are really wrong, pass their share as --wrong")
    if job.wrong == 0:
        raise InputError(f"{warning}. If the target is wrong, correct it, or leave out --wrong 0")
    return warning


def rule_named(text: str) -> Rule:
    """One of Clipper's rules by its name, or the function or `Rule` that `FILE.py:NAME` names.

    Args:
        text: the name of a rule, such as "sum" or "count:3"; or `FILE.py:NAME`.

    Raises:
        FileError: if there is no such file.
        InputError: if there is no such rule, or `NAME` is not a function.

    Examples:
        >>> rule_named("checksum:3,1").value((4, 8))  # 3 · 4 + 1 · 8, modulo 10
        0
    """
    path, colon, name = text.rpartition(":")
    file = text.removesuffix(":")
    if file.endswith(".py"):
        raise InputError(f"{file} needs a function: {file}:FUNCTION, got {shown(text)}")
    if not (colon and path.endswith(".py")):
        return rules.named(text)
    found = read_from_file(text, "a function from a tuple of labels to the target, or a Rule")
    if isinstance(found, Rule):
        return found
    if not callable(found):
        raise InputError(f"expected {name} in {path} to be a function from a tuple of labels, got {shown(found)}")
    return Rule(name, found)


def _target(text: str, rule: Rule, job: LabelJob, row: int) -> Any:
    """A target from its cell."""
    try:
        parsed = rule.parse(text)
    except (InputError, ValueError) as error:
        raise InputError(f"{line(job.samples, row)}: {error}") from error
    if not isinstance(parsed, str):
        return parsed
    try:
        number = float(parsed)  # spreadsheets write 14.0 in columns with gaps
    except ValueError:
        number = float("nan")
    if number.is_integer():
        return int(number)
    if ".py:" not in str(job.rule):
        raise InputError(
            f"{line(job.samples, row)}: expected a whole number as the target of the rule {job.rule}, got {shown(text)}"
        )
    return parsed if number != number else number


def _by_program(job: LabelJob, table: SampleTable, classes: int, names: Sequence[str] | None) -> Candidates:
    assert job.program is not None
    read_text(job.program, "the logic program")
    sentences = [
        Sentence(text, slots=[f"{PREDICATE}({name}, _)" for name in table.slots[:length]])
        for text, length in zip(table.targets, table.lengths, strict=True)
    ]
    return Candidates.from_program(job.program, sentences, {PREDICATE: list(names or range(classes))})


def _check_files(job: LabelJob, table: SampleTable, folder: Path) -> None:
    """Refuse a folder that is not there, numbers in place of images, and columns that hold no image.

    Raises:
        FileError: there is no such folder, or no cell of a column is a file in it.
        InputError: the slots hold numbers.
    """
    _check_folder(folder)
    columns = {name: [row[j] for row in table.cells if j < len(row)] for j, name in enumerate(table.slots)}
    missing = [
        name for name, cells in columns.items() if cells and not any((folder / cell).is_file() for cell in cells)
    ]
    first = columns[missing[0]][0] if missing else ""
    if len(missing) == len(table.slots) and all(cell.isdecimal() for name in missing for cell in columns[name]):
        raise InputError(
            f"expected names of image files in the slots of {job.samples}, got numbers such as {first}; if they are "
            "rows of a file of embeddings, pass this file as --embeddings"
        )
    if missing and len(missing) < len(table.slots):
        rest = ",".join(name for name in table.slots if name not in missing)
        raise FileError(
            f"expected names of image files in each slot of {job.samples}, but no cell of the column "
            f"{', '.join(missing)} is a file in {folder}, such as {shown(first)}; if it is no slot, name the slots: "
            f"--slots {rest}"
        )


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise FileError(f"there is no folder {folder}; check --images, the folder of the image files")


def _rows(table: SampleTable, path: Path, most: int, embeddings: Path) -> list[list[int]]:
    rows = []
    for i, cells in enumerate(table.cells):
        for cell in cells:
            if not cell.isdecimal() or int(cell) >= most:
                raise InputError(
                    f"{line(path, i)}: expected a row of {embeddings}, 0 … {most - 1}, in each slot, got {shown(cell)}"
                )
        rows.append([int(cell) for cell in cells])
    return rows


def _answers(
    job: LabelJob, lengths: Sequence[int], slots: Sequence[str], classes: int, names: Sequence[str] | None
) -> tuple[Tensor, Tensor]:
    if job.known is None:
        return torch.full((len(lengths), max(lengths)), -1), torch.zeros(len(lengths), dtype=torch.bool)
    return read_answers(job.known, lengths, slots or [str(j) for j in range(max(lengths))], classes, names)


def _label_names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    path = Path(text)
    names = read_text(path, "the label names").splitlines() if _is_file(Path(), text) else text.split(",")
    found = tuple(name.strip() for name in names if name.strip())
    if len(found) < 2 or len(set(found)) < len(found):
        raise InputError(
            f"expected --label-names to be different names with commas between them, or a text file with a name in "
            f"each line, got {shown(text)}"
        )
    return found


def _is_file(folder: Path, text: str) -> bool:
    """Whether label names are given as a file with a name in each line."""
    return "," not in text and (folder / text).is_file()


def _check_names(names: Sequence[str] | None, classes: int) -> None:
    if names is not None and len(names) != classes:
        raise InputError(f"expected {classes} --label-names, one for each label, got {len(names)}")
