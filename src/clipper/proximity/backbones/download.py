"""Downloads that arrive whole and checked, or not at all."""

from __future__ import annotations

import shutil
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path

from clipper.errors import FileError
from clipper.files import written_whole

_PATIENCE = 30.0
"""Seconds without an answer after which a download is given up."""


def download(address: str, destination: Path, check: Callable[[Path], None]) -> Path:
    """Fetch a file; it takes its place only once `check` has accepted it."""
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
