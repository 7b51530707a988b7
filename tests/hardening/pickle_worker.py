"""Reads one crafted pickle after the other in a process of its own, and tells what became of each.

`read_arrays` is the one door through which Clipper reads pickles. Each line of standard input is a pickle in
hexadecimal digits; each line of standard output is "read", "refused: MESSAGE" or "raw: MESSAGE". Whatever a pickle
manages to call, import, open or run is raw, and so is an answer that is more than plain values.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np

from clipper.benchmarks.data.pickles import read_arrays
from clipper.errors import FileError

MEMORY = 2 << 30
"""Bytes that reading may add to the process."""
PLAIN = (str, int, float, bytes, bytearray, bool, type(None))

happened: list[str] = []
watching = False


def audit(event: str, arguments: tuple[Any, ...]) -> None:
    if watching and not event.startswith(("object.__", "sys._")):
        happened.append(f"{event}{arguments!r:.100}")


def check_plain(value: Any) -> None:
    if isinstance(value, np.ndarray):
        assert type(value) is np.ndarray
        assert value.dtype.kind in "biuf", value.dtype
        value.sum()  # reads every byte
    elif type(value) in (list, tuple):
        for each in value:
            check_plain(each)
    elif type(value) is dict:
        for key, each in value.items():
            check_plain(key)
            check_plain(each)
    else:
        assert type(value) in PLAIN, type(value)


def answer(content: bytes) -> str:
    global watching
    happened.clear()
    watching = True
    try:
        value = read_arrays(content, "the pickle")
    except FileError as error:
        return f"refused: {str(error)!a}"
    except BaseException as error:
        return f"raw: {type(error).__name__}: {str(error)!a}"
    finally:
        watching = False
    check_plain(value)
    return "read"


def main() -> None:
    """Answer until standard input ends."""
    sys.addaudithook(audit)
    read_arrays(b"Vtext\n.", "text")  # imports what is imported late
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    for line in sys.stdin:
        told = answer(bytes.fromhex(line))
        print(f"raw: {happened}" if happened else told, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
