"""What all attacks share: damaged files, calls that may only be refused in words, and commands run in another process.

The attacks call the public contract and the command line, so that they outlive any redesign of what is behind it.
Everything is seeded. `EFFORT` is 1 in `make test`; `make check` sets it to 4 and attacks that many times as long.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from clipper.errors import ClipperError

EFFORT = int(os.environ.get("CLIPPER_EFFORT", "1"))
"""How many times as long as in `make test` the attacks go on."""

ROOT = Path(__file__).parents[2]


def answered(call: Callable[[], Any]) -> Any | ClipperError:
    """What a call returned, or the `ClipperError` by which it refused; any other exception fails the test.

    Python's own `TypeError` for a wrong signature is let through as a refusal: nobody writes that message by hand.
    """
    try:
        return call()
    except ClipperError as error:
        if not str(error).strip():
            raise AssertionError("a refusal must say what was expected") from error
        return error
    except TypeError as error:
        frames = traceback.extract_tb(error.__traceback__)
        if len(frames) <= 2:  # raised by the call itself, before a line of the library ran
            return ClipperError(str(error))
        raise


def refused(call: Callable[[], Any]) -> ClipperError:
    """The `ClipperError` by which a call refused; an answer fails the test."""
    answer = answered(call)
    assert isinstance(answer, ClipperError), f"expected a refusal, got {answer!r}"
    return answer


def damaged(content: bytes, count: int, seed: int) -> Iterator[bytes]:
    """`count` damaged copies of a file: bits flipped, parts cut, repeated, overwritten or exchanged."""
    for i in range(count):
        yield _damaged(bytearray(content), random.Random(seed * 1_000_003 + i))


def _damaged(content: bytearray, rng: random.Random) -> bytes:
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        size = max(1, len(content))
        start = rng.randrange(size)
        length = min(rng.choice((1, 2, 4, 8, 64, 1024)), size - start)
        match rng.randrange(7):
            case 0:
                if content:
                    content[start % len(content)] ^= 1 << rng.randrange(8)
            case 1:
                del content[start:]
            case 2:
                del content[start : start + length]
            case 3:
                content[start : start + length] = rng.randbytes(length)
            case 4:
                content[start : start + length] = bytes([rng.choice((0, 255, 127, 128))]) * length
            case 5:
                content[start:start] = content[start : start + length]
            case _:
                content[start:start] = rng.randbytes(length)
    return bytes(content)


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str

    def check_refused(self) -> None:
        """One message in words, exit code 1 (2 where the command line itself is wrong), no trace of Python."""
        assert self.code in (1, 2), f"expected a refusal, got exit code {self.code}: {self.err[-2000:]}"
        assert "Traceback" not in self.err, self.err[-3000:]
        assert self.err.strip(), "expected a message on standard error"


class Clippers:
    """A process that runs one `clipper` command after the other, because starting each anew costs seconds.

    A command that brings the process down is told as a crash, with its arguments; the next one gets a new process.
    """

    def __init__(self, timeout: float = 120.0) -> None:
        self.timeout = timeout
        self._process: subprocess.Popen[str] | None = None

    def run(self, *arguments: object, cwd: Path | None = None, **environment: str) -> Ran:
        """Run `clipper ARGUMENTS`."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        job = {"argv": [str(a) for a in arguments], "cwd": str(cwd or ROOT), "env": environment, "limit": self.timeout}
        process.stdin.write(json.dumps(job) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            self._process = None
            raise AssertionError(f"clipper {job['argv']} crashed with exit code {process.wait()}")
        return Ran(**json.loads(line))

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.hardening.worker"],
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        return self._process

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


def listing(folder: Path) -> dict[str, bytes]:
    """Everything below a folder, to see that a command that failed wrote nothing."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The system refuses to let a file grow past the size, as a full disk does."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def check_all_answer(calls: Sequence[tuple[str, Callable[[], Any]]]) -> tuple[int, int]:
    """Make every call; how many were answered and how many refused. Raw exceptions are told together, by name."""
    raw, refusals = [], 0
    for name, call in calls:
        try:
            refusals += isinstance(answered(call), ClipperError)
        except Exception as error:
            raw.append(f"{name}: {type(error).__name__}: {error}")
    assert not raw, f"{len(raw)} of {len(calls)} calls raised raw exceptions:\n" + "\n".join(raw)
    return len(calls) - refusals, refusals
