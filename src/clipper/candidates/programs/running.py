"""A job for clingo in its own process: sent, waited for no longer than allowed, and its answers read."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clipper.candidates.programs import worker
from clipper.candidates.programs.writing import Shape
from clipper.errors import BudgetError, FileError, InputError, require

Answers = dict[tuple[int, int], np.ndarray]
"""By shape and sentence: `(rows, slots)`, at least one row each."""


MEMORY = 4_000_000_000
"""Bytes that clingo may take."""


def answers(theory: str | Path, shapes: Sequence[Shape], job: dict[str, Any], time_limit: float) -> Answers:
    """Run the job; errors of the theory are told with clingo's own line and message."""
    require("clingo", extra="logic")
    if not time_limit > 0:
        raise InputError(f"expected a positive time limit in seconds, got {time_limit}")
    with tempfile.TemporaryDirectory() as folder:
        path = _file_of(theory, Path(folder))
        done, late = _run(json.dumps({**job, "theory": str(path), "memory": MEMORY}), time_limit)
        frames = list(_frames(done.stdout))
        notes: dict[int, str] = {}
        for frame, _ in frames:
            shape = shapes[frame["group"]]
            if frame.get("messages"):
                notes[frame["group"]] = _explained(frame["messages"], shape, path, theory)
            _check(frame, shape, notes.get(frame["group"], ""))
        if late:
            raise BudgetError(_too_late(frames, shapes, time_limit))
        if done.returncode:
            raise InputError(f"clingo ended without an answer: {done.stderr.decode(errors='replace').strip()[-500:]}")
    return {(frame["group"], frame["sentence"]): rows for frame, rows in frames if rows is not None}


def _file_of(theory: str | Path, folder: Path) -> Path:
    if isinstance(theory, Path):
        if not theory.is_file():
            raise FileError(f"the theory {theory} is no file; pass the text itself as str, or the path of a file")
        return theory.resolve()
    path = folder / "theory.lp"
    path.write_text(theory, encoding="utf-8")
    return path


def _run(job: str, time_limit: float) -> tuple[subprocess.CompletedProcess[bytes], bool]:
    command = [sys.executable, worker.__file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        late = False
        try:
            out, err = process.communicate(job.encode(), timeout=time_limit)
        except subprocess.TimeoutExpired:
            late = True
            process.kill()
            out, err = process.communicate()
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err), late


def _frames(output: bytes) -> Iterator[tuple[dict[str, Any], np.ndarray | None]]:
    """The worker's answers; what a killed worker left half-written is passed over."""
    place = 0
    while (end := output.find(b"\n", place)) >= 0:
        frame: dict[str, Any] = json.loads(output[place:end])
        place = end + 1
        if "rows" not in frame:
            yield frame, None
            continue
        size = 4 * frame["rows"] * frame["slots"]
        if place + size > len(output):
            return
        yield frame, np.frombuffer(output, np.int32, size // 4, place).reshape(-1, frame["slots"])
        place += size


def _check(frame: dict[str, Any], shape: Shape, notes: str) -> None:
    """Raise the error that an answer amounts to; `notes` is what clingo had to say of the shape."""
    if frame.get("full"):
        raise BudgetError(
            f"grounding the theory for sample {shape.samples[0]} took more than {MEMORY / 1e9:.0f} GB of memory; bind "
            "the variables of its rules more narrowly"
        )
    if "error" in frame:
        raise InputError(notes or frame["error"])
    labels = "|".join({slot.split("(")[0].strip() for slot in shape.slots})
    unknown = re.search(rf"[^;]*does not occur in any rule head:\s*({labels})\([^;]*", notes)
    if unknown and frame.get("grounded"):
        raise InputError(f"an unknown label: {unknown[0].strip()}; correct it, or add it to labels=")
    if "sentence" not in frame:
        return
    whose = shape.name(frame["sentence"])
    if frame.get("more"):
        raise BudgetError(
            f"{whose}: its candidates pass the budget. Raise budget=, draw some uniformly with per_sample=, or compile "
            "the sentence into a Formula"
        )
    if frame.get("thin"):
        raise BudgetError(
            f"{whose}: hardly any combination of the labels that it allows by themselves satisfies it, so none could "
            "be drawn uniformly; list all candidates (without per_sample=), or compile a Formula"
        )
    if not frame["rows"]:
        why = "the theory contradicts itself" if frame["contradiction"] else "nothing satisfies its sentence"
        hint = f" (clingo says: {notes})" if notes else ""
        raise InputError(f"{whose}: {why}{hint}; correct it, or leave the sample out")


def _explained(messages: Sequence[str], shape: Shape, path: Path, theory: str | Path) -> str:
    """clingo's messages, with the sample's name for the lines that were written for it."""
    told = []
    for message in messages:
        text = re.sub(r"\[#inc_base\];?", "", " ".join(message.split())).replace(
            str(path), str(theory) if isinstance(theory, Path) else "theory"
        )
        for line in dict.fromkeys(re.findall(r"<block>:(\d+)", text)):
            owner = shape.where(int(line))
            text = re.sub(rf"<block>:{line}:[\d-]+", owner or "the program", text)
        told.append(text)
    return "; ".join(told)


def _too_late(
    frames: Sequence[tuple[dict[str, Any], np.ndarray | None]], shapes: Sequence[Shape], time_limit: float
) -> str:
    last = frames[-1][0] if frames else {"group": 0, "begins": True}
    shape = shapes[last["group"]]
    first = shape.samples[0]
    if last.get("begins"):
        return (
            f"grounding the theory for sample {first} took longer than the time limit of {time_limit:g} s; bind the "
            "variables of its rules more narrowly, or raise time_limit="
        )
    return (
        f"solving the samples of the shape of sample {first} took longer than the time limit of {time_limit:g} s; "
        "raise time_limit=, or draw some candidates with per_sample="
    )
