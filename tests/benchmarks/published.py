"""Small data sets published for one test: files with their sums, mirrors in folders, an npm that is a script."""

from __future__ import annotations

import hashlib
import io
import struct
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from clipper.benchmarks.data.sources import Form, Source
from clipper.benchmarks.datasets import inventory


def needs(name: str) -> pytest.MarkDecorator:
    """Skip a test by name where a data set is not here."""
    reason = f"{name} is not here: set CLIPPER_DATA to a folder that holds it, or run clipper data fetch {name}"
    return pytest.mark.skipif(inventory(name).summary not in ("verified", "unverified"), reason=reason)


def form(name: str, contents: dict[str, bytes], mirrors: tuple[Path, ...] = (), package: str = "") -> Form:
    sums = {file: hashlib.sha256(content).hexdigest() for file, content in contents.items()}
    return Form(name, sums, tuple(f"{mirror.as_uri()}/" for mirror in mirrors), package, "data/" if package else "")


def source(*forms: Form, name: str = "toy") -> Source:
    return Source(name, forms, f"fetch it with: clipper data fetch {name}")


def write(folder: Path, contents: dict[str, bytes]) -> Path:
    for file, content in contents.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(content)
    return folder


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}i", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def tarball(contents: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for file, content in contents.items():
            member = tarfile.TarInfo(file)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def fake_npm(folder: Path, archive: bytes | None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An executable `npm`, alone on the path, that notes how it was called and packs the archive, or fails."""
    folder.mkdir()
    (folder / "archive").write_bytes(archive or b"")
    act = f"shutil.copy({str(folder / 'archive')!r}, 'toy.tgz')" if archive is not None else "sys.exit('E404 no such')"
    lines = [
        f"#!{sys.executable}",
        "import pathlib, shutil, sys",
        f"pathlib.Path({str(folder / 'called')!r}).write_text(' '.join(sys.argv[1:]))",
        act,
    ]
    (folder / "npm").write_text("\n".join(lines))
    (folder / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return folder / "called"


def python2_batch(pixels: np.ndarray, labels: list[int]) -> bytes:
    """A batch of CIFAR-10 as Python 2 pickled it: byte strings, and NumPy under its old name."""
    rows, columns = pixels.shape
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01"
        + struct.pack("<cici", b"J", rows, b"J", columns)
        + b"\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T"
        + struct.pack("<i", pixels.size)
        + pixels.tobytes()
        + b"tb"
    )
    numbers = b"".join(b"K" + bytes([label]) for label in labels)
    return b"\x80\x02}(U\x04data" + array + b"U\x06labels](" + numbers + b"eu."
