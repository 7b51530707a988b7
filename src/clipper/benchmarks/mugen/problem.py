"""The clips of a run by the name of their data set: those that it learns from, and those that it is measured on."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from clipper.benchmarks.data.sources import Form, Source, find, not_found
from clipper.benchmarks.mugen.clips import Clips, draw_clips
from clipper.benchmarks.mugen.files import ANNOTATIONS, read_clips
from clipper.benchmarks.mugen.task import ClipTask, task_of
from clipper.errors import InputError

MUGEN = Source(
    "mugen",
    (Form("MUGEN's annotations", {ANNOTATIONS.format(split=split): "" for split in ("train", "test")}),),
    "get the 3.2 s videos of MUGEN (mugen-org.github.io/download), or draw clips in its layout: "
    "`clipper clips FOLDER/mugen`",
)
HELD_OUT = 200
"""Clips that a run is measured on."""
_SEED = 2**31 - 1
"""Of the drawn clips that are held out: no run's own."""
_SHORTEST = 16


def learned_and_held_out(
    data: str, samples: int, frames: int, seed: int, root: str | Path | None = None
) -> tuple[ClipTask, ClipTask]:
    """Clips of at most so many `frames` to learn from, as many as `samples`, and others to be measured on.

    Examples:
        >>> learned, held_out = learned_and_held_out("clips", samples=5, frames=16, seed=0)
        >>> learned.candidates.samples, held_out.candidates.samples
        (5, 200)
    """
    if data == "clips":
        return task_of(_drawn(samples, seed, frames)), task_of(_drawn(HELD_OUT, _SEED, frames))
    place = find(MUGEN, root)
    if place is None:
        raise not_found(MUGEN, root)
    learned = read_clips(place.folder, "train", clips=samples, frames=frames, seed=seed)
    if len(learned) < samples:
        raise InputError(f"expected {samples} clips to learn from, got {len(learned)} in {place.folder}; ask for fewer")
    return task_of(learned), task_of(read_clips(place.folder, "test", clips=HELD_OUT, frames=frames))


@lru_cache(maxsize=4)
def _drawn(clips: int, seed: int, frames: int) -> Clips:
    """Kept, because the rows of a table learn from the same clips."""
    return draw_clips(clips, seed, frames=(min(_SHORTEST, frames), frames))
