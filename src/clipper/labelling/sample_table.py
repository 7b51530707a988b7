"""SampleTable: a table with a row for each sample: its slots, its target and known labels."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import torch
from torch import Tensor

from clipper.arguments import shown
from clipper.candidates.storage import open_parquet
from clipper.errors import InputError
from clipper.files import read_text

TARGET, ID, KNOWN = "target", "id", "known_"
"""Reserved names of columns; the last is the prefix of the columns of known labels."""
_LIKE_TARGET = ("target", "targets", "total", "totals", "sum")
"""Names, in lower case, of columns that probably hold the target under another name."""
WRONG_TARGET = "wrong target"
"""Written in place of a label in the file of answers if the target of the sample is wrong."""


@dataclass(frozen=True)
class SampleTable:
    """A table of samples, as text.

    Attributes:
        slots: the names of the columns that hold the slots.
        cells: the cells of the used slots of each sample: names of image files, or row numbers of embeddings.
        targets: the target of each sample.
        ids: the id of each sample; None if the table has no such column.
        known: the cells of the `known_` columns of each sample; empty text if nothing is known.
    """

    slots: tuple[str, ...]
    cells: list[list[str]]
    targets: list[str]
    ids: list[str] | None
    known: list[list[str]]

    @classmethod
    def read(cls, path: Path, slots: Sequence[str] = (), target: str = TARGET) -> SampleTable:
        """Read a table: CSV with commas or semicolons, or Parquet.

        Args:
            path: the file.
            slots: the columns that hold the slots; if none are named, all except the target, `id` and `known_…`.
            target: the column that holds what is known of each sample.

        Raises:
            FileError: if the file cannot be read.
            InputError: if a column or a cell is missing; the message names it.
        """
        if target == ID or target.startswith(KNOWN):
            raise InputError(f"expected a column of targets in --target, got {target!r}, which has another meaning")
        columns = read_columns(path, "the samples")
        for i, name in enumerate(slots):
            if name in slots[:i]:
                raise InputError(f"expected each column of slots once in --slots, got {name!r} twice; leave one out")
            if is_reserved(name, target):
                raise InputError(
                    f"expected columns of slots in --slots, got {name!r}, which holds no slot: {target}, {ID} and "
                    f"{KNOWN}… have another meaning; leave it out"
                )
        found = tuple(slots) or tuple(name for name in columns if not is_reserved(name, target))
        wanted = {target: "what is known of each sample", **dict.fromkeys(found, "a slot")}
        for name, what in wanted.items():
            if name not in columns:
                alike = [other for other in columns if name == TARGET and other.lower() in _LIKE_TARGET]
                alike += get_close_matches(name, columns, 1)
                option = f" or pass --target {alike[0]}" if alike and name == target else ""
                advice = f"; rename {alike[0]!r} to {name!r}{option}" if alike else ""
                raise InputError(
                    f"expected a column {name!r} in {path}, {what}, got the columns {', '.join(columns)}{advice}"
                )
        for name in () if slots else found:
            if _is_index(name):
                rest = ",".join(other for other in found if not _is_index(other))
                raise InputError(
                    f"the column {name!r} of {path} looks like row numbers, a target or an id, not like a slot; leave "
                    f"it out, or name the columns of slots: --slots {rest or name}"
                )
        if not found:
            raise InputError(f"expected a column for each slot in {path}, got only {', '.join(columns)}")
        for name in columns:
            if name.startswith(KNOWN) and name.removeprefix(KNOWN) not in found:
                raise InputError(
                    f"the column {name!r} of {path} names no slot; slots are {', '.join(found)}, so expected "
                    f"{KNOWN}{found[0]} and the like"
                )
        rows = len(columns[target])
        if not rows:
            raise InputError(f"{path} has no rows below its header; expected one for each sample")
        cells = [_used([columns[name][i] for name in found], path, i) for i in range(rows)]
        for i, value in enumerate(columns[target]):
            if not value:
                raise InputError(f"{line(path, i)} has no target; fill it in, or leave the row out")
        missing = [""] * rows
        known = [list(row) for row in zip(*(columns.get(KNOWN + name, missing) for name in found), strict=True)]
        return cls(found, cells, columns[target], columns.get(ID), known)

    @property
    def lengths(self) -> list[int]:
        """How many slots each sample uses."""
        return [len(row) for row in self.cells]


def read_columns(path: Path, what: str) -> dict[str, list[str]]:
    """The columns of a CSV or Parquet file as text, without leading and trailing spaces.

    Args:
        path: the file.
        what: what the file contains, for messages, such as "the samples".

    Raises:
        FileError: if the file cannot be read.
        InputError: if it is not a table.
    """
    if path.suffix.lower() in (".parquet", ".pq"):
        with open_parquet(path) as file:
            table = file.read()
        return {
            name: ["" if value is None else _plain(value) for value in column.to_pylist()]
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
    text = read_text(path, what).removeprefix("\ufeff")  # the byte order mark that spreadsheets write
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True) if row]
    except csv.Error as error:
        raise InputError(f"{path} cannot be read as a table ({error}); expected CSV") from error
    if not rows:
        raise InputError(f"{path} is empty; expected a table with a header line")
    head = [name.strip() for name in rows[0]]
    if len(set(head)) < len(head):
        raise InputError(f"a column name of {path} occurs twice among {', '.join(head)}; give each column its own name")
    for i, row in enumerate(rows[1:]):
        if len(row) != len(head):
            raise InputError(f"{line(path, i)} has {len(row)} cells, but the header has {len(head)}; check its commas")
    return {name: [row[place].strip() for row in rows[1:]] for place, name in enumerate(head)}


def is_reserved(name: str, target: str) -> bool:
    """Whether a column with this name holds no slot: the target, `id` or `known_…`."""
    return name in (target, ID) or name.startswith(KNOWN)


def _is_index(name: str) -> bool:
    """Whether a column with this name probably holds no slot: the row numbers that pandas writes, or a reserved name
    in other letters."""
    lowered = name.lower()
    return lowered in ("", "index", "sample", ID, TARGET) or lowered.startswith(("unnamed:", "__index_level_", KNOWN))


def line(path: Path, row: int) -> str:
    """The place of a row in a message: the line of a CSV file, counted from 1, or the row of a Parquet file.

    Examples:
        >>> line(Path("samples.csv"), 0)
        'line 2 of samples.csv'
    """
    if path.suffix.lower() in (".parquet", ".pq"):
        return f"row {row} of {path}"
    return f"line {row + 2} of {path}"


def label_number(text: str, classes: int, names: Sequence[str] | None) -> int | None:
    """The label in a cell, given by number or by name; None if it is neither.

    If names can be mistaken for numbers, such as those of a die, only names are labels.

    Examples:
        >>> label_number("2", 3, None), label_number("dog", 2, ["cat", "dog"]), label_number("7", 3, None)
        (2, 1, None)
        >>> label_number("1", 6, "123456"), label_number("0", 6, "123456")
        (0, None)
    """
    if names is not None and text in names:
        return list(names).index(text)
    if names is not None and mistakable(names) is not None:
        return None
    try:
        number = float(text)  # spreadsheets write 3.0 in columns with gaps
    except ValueError:
        return None
    return int(number) if number.is_integer() and 0 <= number < classes else None


def mistakable(names: Sequence[str]) -> str | None:
    """The first name that is also the number of another label (or slot); None if there is none.

    Examples:
        >>> mistakable(["1", "2", "3"]), mistakable(["0", "1", "2"]), mistakable(["cat", "dog"])
        ('1', None, None)
    """
    return next((name for i, name in enumerate(names) if label_number(name, len(names), None) not in (None, i)), None)


def known_labels(table: SampleTable, path: Path, width: int, classes: int, names: Sequence[str] | None) -> Tensor:
    """The labels in a table's `known_` columns, `(n, m)`, -1 where nothing is known.

    Args:
        table: the table.
        path: its file, for messages.
        width: the number of slots, `m`.
        classes: the number of labels.
        names: the names of the labels, if they have names.

    Raises:
        InputError: if a cell contains no label, or belongs to an unused slot; the message names the line.
    """
    known = torch.full((len(table.cells), width), -1)
    for i, row in enumerate(table.known):
        for j, text in enumerate(row):
            if not text:
                continue
            number = label_number(text, classes, names)
            if number is None or j >= len(table.cells[i]):
                raise InputError(
                    f"{line(path, i)}: expected {_labels(classes, names)} in {KNOWN}{table.slots[j]}, and only where "
                    f"the slot is used, got {shown(text)}"
                )
            known[i, j] = number
    return known


def read_answers(
    path: Path, lengths: Sequence[int], slots: Sequence[str], classes: int, names: Sequence[str] | None
) -> tuple[Tensor, Tensor]:
    """Answers of `clipper review`: known labels `(n, m)`, -1 elsewhere, and samples whose target is wrong, `(n,)` bool.

    The columns are sample, slot (number or name) and label (number or name). In files that Clipper wrote, which also
    have a column name or probability, slots and labels are numbers. The last answer about a slot counts; an empty label
    revokes earlier answers. The label `wrong target` with an empty slot applies to the whole sample.

    Args:
        path: the CSV or Parquet file.
        lengths: the number of slots of each sample.
        slots: the names of the slots.
        classes: the number of labels.
        names: the names of the labels, if they have names.

    Raises:
        FileError: if the file cannot be read.
        InputError: if a line names no instance or label of these samples, the message names the line; or if a name
            could be mistaken for a number.
    """
    columns = read_columns(path, "the known labels")
    for name in ("sample", "slot", "label"):
        if name not in columns:
            raise InputError(
                f"expected the columns sample, slot and label in {path}, got {', '.join(columns)}: {name} is missing"
            )
    numbered = not {"name", "probability"}.isdisjoint(columns)
    if not numbered:
        check_unmistakable(path, slots, names)
    called = columns.get("name", [""] * len(columns["label"]))
    known = torch.full((len(lengths), max(lengths)), -1)
    wrong = torch.zeros(len(lengths), dtype=torch.bool)
    rows = zip(columns["sample"], columns["slot"], columns["label"], called, strict=True)
    for i, (sample, slot, label, name) in enumerate(rows):
        row = label_number(sample, len(lengths), None)
        if row is None:
            raise InputError(f"{line(path, i)}: expected a sample of 0 … {len(lengths) - 1}, got {shown(sample)}")
        if not slot and label in (WRONG_TARGET, ""):
            wrong[row] = bool(label)
            continue
        place = label_number(slot, lengths[row], None if numbered else list(slots)[: lengths[row]])
        if place is None:
            raise InputError(
                f"{line(path, i)}: expected a slot of sample {row}, one of {', '.join(slots[: lengths[row]])} or its "
                f"number from 0, got {shown(slot)}"
            )
        number = label_number(label, classes, None if numbered else names) if label else -1
        if name and names is not None:
            by_name = label_number(name, classes, names)
            if by_name is None or (label and by_name != number):
                raise InputError(
                    f"{line(path, i)}: expected the name of the label, one of {', '.join(names[:10])}, which fits its "
                    f"number, got the label {shown(label)} with the name {shown(name)}"
                )
            number = by_name
        if number is None:
            raise InputError(f"{line(path, i)}: expected {_labels(classes, names)}, got {shown(label)}")
        known[row, place] = number
    return known, wrong


def check_unmistakable(path: Path, slots: Sequence[str], names: Sequence[str] | None) -> None:
    """Refuse a file of answers in which a name could be mistaken for the number of another slot or label.

    Raises:
        InputError: such a name exists; the message says what to do.
    """
    for what, every in (("slot", slots), ("label", names or ())):
        name = mistakable(every)
        if name is not None:
            raise InputError(
                f"in {path}, {name!r} could be the name of one {what} or the number of another; add a column 'name' "
                "with the names of the labels (then slot and label hold numbers from 0)"
                + ("" if what == "label" else ", or rename the columns of the slots")
            )


def _labels(classes: int, names: Sequence[str] | None) -> str:
    return f"a label of 0 … {classes - 1}" + (f" or one of {', '.join(names[:10])}" if names else "")


def _used(row: list[str], path: Path, number: int) -> list[str]:
    """The cells of the used slots of a row: those before the first empty cell. All cells after it must be empty."""
    used = [cell for cell in row if cell]
    if not used:
        raise InputError(f"{line(path, number)} has no input in any slot; leave the row out")
    if row[: len(used)] != used:
        raise InputError(
            f"{line(path, number)} has an empty slot before a used one; leave the last slots empty, not those between"
        )
    return used


def _plain(value: object) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()
