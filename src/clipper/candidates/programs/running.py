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
from clipper.candidates.programs.wording import readable, slot_of
from clipper.candidates.programs.writing import Shape
from clipper.errors import BudgetError, FileError, InputError, SolverError, require

Answers = dict[tuple[int, int], np.ndarray]
"""By shape and sentence: `(rows, slots)`, at least one row each."""

MEMORY = 4_000_000_000
"""Bytes that clingo may take."""
LONGEST = 1e9
"""Seconds past which a time limit is none."""
_TOLD = 20
"""Messages of clingo's that are passed on."""


def answers(theory: str | Path, shapes: Sequence[Shape], job: dict[str, Any], time_limit: float) -> Answers:
    """Run the job; errors of the theory are told with clingo's own line and message."""
    require("clingo", extra="logic")
    with tempfile.TemporaryDirectory() as folder:
        path, inside = _file_of(theory, Path(folder).resolve())
        job = {**job, "theory": str(path), "folder": inside, "memory": MEMORY}
        done, late = _run(json.dumps(job), time_limit)
        frames = list(_frames(done.stdout, cut=late or done.returncode != 0))
        notes: dict[int, str] = {}
        for frame, _ in frames:
            shape = shapes[frame["group"]]
            if "refused" in frame:
                raise InputError(_refusal(frame, shape, path, theory))
            if frame.get("messages"):
                notes[frame["group"]] = _explained(frame["messages"], shape, path, theory)
            _check(frame, shape, notes.get(frame["group"], ""))
        if late:
            raise BudgetError(_too_late(frames, shapes, time_limit))
        if done.returncode:
            last = done.stderr.decode(errors="replace").strip()[-500:] or "it said nothing"
            raise SolverError(f"clingo's process ended with exit code {done.returncode} and without an answer: {last}")
    return {(frame["group"], frame["sentence"]): _rows(frame, codes, shapes, job) for frame, codes in frames
            if "rows" in frame}  # fmt: skip


def _rows(frame: dict[str, Any], codes: np.ndarray, shapes: Sequence[Shape], job: dict[str, Any]) -> np.ndarray:
    """The labels in an answer, `(rows, slots)`, or for "brave" slot and label, `(rows, 2)`; checked, each row once."""
    slots = job["groups"][frame["group"]]["slots"]
    brave = job["mode"] == "brave"
    rows = codes.reshape(-1, 1 if brave else len(slots))
    slot, label = np.divmod(rows, job["classes"])
    start = np.array([own["start"] for own in slots])
    stop = start + np.array([len(own["atoms"]) for own in slots])
    fits = (slot >= 0) & (slot < len(slots))
    if not brave:
        fits &= slot == np.arange(len(slots))
    if bool(fits.all()):
        fits &= (start[slot] <= label) & (label < stop[slot])
    differ = rows[1:] != rows[:-1]
    first = differ.argmax(1) if len(rows) > 1 else np.zeros(0, int)  # rows come sorted: where they differ, they grow
    place = np.arange(len(first))
    grows = differ.any(1) & (rows[1:][place, first] > rows[:-1][place, first])
    if not (bool(fits.all()) and bool(grows.all())):
        raise SolverError(
            f"{shapes[frame['group']].name(frame['sentence'])}: clingo's answer is not one label per slot"
        )
    return np.concatenate([slot, label], 1) if brave else label


def _file_of(theory: str | Path, folder: Path) -> tuple[Path, str | None]:
    """The file of a theory, and the folder whose files it may include."""
    if isinstance(theory, Path):
        if not theory.is_file():
            raise FileError(f"the theory {theory} is no file; pass the text itself as str, or the path of a file")
        try:
            readable(theory.read_text(encoding="utf-8"), f"the theory {theory}", includes=True)
        except UnicodeDecodeError as error:
            raise FileError(
                f"the theory {theory} is no text in UTF-8 ({error.reason} at byte {error.start})"
            ) from error
        except OSError as error:
            raise FileError(f"cannot read the theory {theory} ({error.strerror})") from error
        path = theory.resolve()
        return path, str(path.parent)
    path = folder / "theory.lp"
    path.write_text(theory, encoding="utf-8", newline="\n")
    return path, None


def _run(job: str, time_limit: float) -> tuple[subprocess.CompletedProcess[bytes], bool]:
    command = [sys.executable, worker.__file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        late = False
        try:
            out, err = process.communicate(job.encode(), None if time_limit > LONGEST else time_limit)
        except subprocess.TimeoutExpired:
            late = True
            process.kill()
            out, err = process.communicate()
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err), late


def _frames(output: bytes, *, cut: bool) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
    """The worker's answers; what a killed worker left half-written is passed over if the output may be `cut`."""
    place = 0
    while place < len(output):
        begin = place + worker.HEAD.size
        words, codes = worker.HEAD.unpack_from(output, place) if begin <= len(output) else (len(output), 0)
        place = begin + words + codes
        if place > len(output) or codes % 4:
            if cut:
                return
            raise SolverError("clingo's process sent an answer of another length than it said")
        yield json.loads(output[begin : begin + words]), np.frombuffer(output, np.int32, codes // 4, begin + words)


def _refusal(frame: dict[str, Any], shape: Shape, path: Path, theory: str | Path) -> str:
    if frame["line"]:
        return f"{shape.where(frame['line']) or 'the program'}: {frame['refused']}"
    own = str(theory) if isinstance(theory, Path) else "theory"
    reason = frame["refused"].replace(str(path), own)
    return reason if reason.startswith(own) else f"{own}: {reason}"


def _check(frame: dict[str, Any], shape: Shape, notes: str) -> None:
    """Raise the error that an answer amounts to; `notes` is what clingo had to say of the shape."""
    if frame.get("full"):
        raise BudgetError(
            f"grounding the theory for sample {shape.samples[0]} took more than {MEMORY / 1e9:.0f} GB of memory; bind "
            "the variables of its rules more narrowly"
        )
    if "error" in frame:
        raise InputError(notes or frame["error"])
    labels = "|".join({slot_of(slot).kind for slot in shape.slots})
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
    if not frame.get("rows"):
        why = "the theory contradicts itself" if frame["contradiction"] else "nothing satisfies its sentence"
        hint = f" (clingo says: {notes})" if notes else ""
        raise InputError(f"{whose}: {why}{hint}; correct it, or leave the sample out")


def _explained(messages: Sequence[str], shape: Shape, path: Path, theory: str | Path) -> str:
    """clingo's messages, with the sample's name for the lines that were written for it."""
    told = []
    for message in messages[:_TOLD]:
        text = re.sub(r"\[#inc_base\];?", "", " ".join(message.split())).replace(
            str(path), str(theory) if isinstance(theory, Path) else "theory"
        )
        for line in dict.fromkeys(re.findall(r"<block>:(\d+)", text)):
            owner = shape.where(int(line))
            text = re.sub(rf"<block>:{line}:[\d-]+", owner or "the program", text)
        told.append(text)
    told += [f"and {len(messages) - _TOLD} more"] if len(messages) > _TOLD else []
    return "; ".join(told)


def _too_late(frames: Sequence[tuple[dict[str, Any], np.ndarray]], shapes: Sequence[Shape], time_limit: float) -> str:
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
