"""Clips on disk: what is written is read again, and MUGEN's own layout is understood."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clipper.benchmarks.mugen.clips import Clips, draw_clips
from clipper.benchmarks.mugen.files import ANNOTATIONS, read_clips, write_clips
from clipper.errors import FileError, InputError

image = pytest.importorskip("PIL.Image")


@pytest.fixture(scope="module")
def clips() -> Clips:
    return draw_clips(5, frames=(10, 14), actions=(2, 3))


@pytest.fixture(scope="module")
def folder(clips: Clips, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mugen")
    write_clips(clips, folder, "train")
    return folder


def test_drawn_clips_come_back_as_they_were(clips: Clips, folder: Path) -> None:
    again = read_clips(folder)
    assert torch.equal(again.frames, clips.frames)
    assert torch.equal(again.lengths, clips.lengths)
    assert again.texts == clips.texts
    assert again.gold is not None
    assert clips.gold is not None
    assert torch.equal(again.gold, clips.gold)


def test_a_folder_may_be_moved(clips: Clips, folder: Path, tmp_path: Path) -> None:
    moved = folder.rename(tmp_path / "elsewhere")
    try:
        assert torch.equal(read_clips(moved).frames, clips.frames)
    finally:
        moved.rename(folder)


def test_clips_are_drawn_with_the_seed_or_taken_in_order(clips: Clips, folder: Path) -> None:
    assert read_clips(folder, clips=2).texts == clips.texts[:2]
    drawn = read_clips(folder, clips=5, seed=3)
    assert sorted(drawn.texts) == sorted(clips.texts)
    assert drawn.texts == read_clips(folder, clips=5, seed=3).texts


def test_long_videos_are_thinned_evenly(clips: Clips, folder: Path) -> None:
    thin = read_clips(folder, frames=5)
    length = int(clips.lengths[0])
    places = np.linspace(0, length - 1, 5).round().astype(int)
    assert torch.equal(thin.frames[0], clips.frames[0, places])
    assert thin.lengths.tolist() == [5] * 5


def test_frames_are_shrunk(folder: Path) -> None:
    assert read_clips(folder, clips=1, side=16).frames.shape[-2:] == (16, 16)


def _mugen(folder: Path, video: str, notes: list[dict[str, Any]]) -> Path:
    """One clip as MUGEN's own files have it."""
    entry = {
        "video": {"id": "a", "video_file": video, "json_file": "a/video_metadata/a.json", "num_frames": 6},
        "annotations": notes,
    }
    path = folder / ANNOTATIONS.format(split="test")
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"version": "v2", "data_folder": "dataset/mugen/coinrun_v2_video_data", "split": "test"}
    path.write_text(json.dumps({"metadata": metadata, "data": [entry]}))
    return path


AUTOMATIC = {"type": "auto", "text": "Mugen walks to the left, and jumps up to a crate and collects a coin"}
MANUAL = {"type": "manual", "text": "Mugen strolls about."}


def _video(path: Path) -> list[np.ndarray]:
    """A film of six plain frames, and the frames."""
    av = pytest.importorskip("av", reason="PyAV reads videos: pip install 'clipper-nesy[video]'")
    path.parent.mkdir(parents=True)
    frames = [np.full((64, 64, 3), 40 * i, np.uint8) for i in range(6)]
    with av.open(str(path), "w") as film:
        stream = film.add_stream("mpeg4", rate=10)
        stream.width = stream.height = 64
        stream.pix_fmt = "yuv420p"
        for pixels in frames:
            film.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        film.mux(stream.encode())
    return frames


def test_a_video_of_mugens_is_read(tmp_path: Path) -> None:
    frames = _video(tmp_path / "a" / "videos" / "a.mp4")
    _mugen(tmp_path, "a/videos/a.mp4", [MANUAL, AUTOMATIC])
    clips = read_clips(tmp_path, "test")
    assert clips.texts == [(0, 1, 4)]
    assert clips.gold is None  # MUGEN does not say what each frame shows
    assert clips.frames.shape == (1, 6, 3, 32, 32)
    assert clips.frames.float().mean((0, 2, 3, 4)).tolist() == pytest.approx([f.mean() for f in frames], abs=6)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"train\.json cannot be read.*clipper clips"):
        read_clips(tmp_path)
    _mugen(tmp_path, "a/videos/a.mp4", [AUTOMATIC])
    with pytest.raises(FileError, match=r"a\.mp4' was not found; looked in .*dataset/mugen"):
        read_clips(tmp_path, "test")
    _mugen(tmp_path, "a/videos/a.mp4", [MANUAL])
    with pytest.raises(FileError, match="no automatic annotation"):
        read_clips(tmp_path, "test")
    path = _mugen(tmp_path, "a/videos/a.mp4", [AUTOMATIC])
    path.write_text(json.dumps({"metadata": {}}))
    with pytest.raises(FileError, match=r"no list of MUGEN's annotations.*'data'"):
        read_clips(tmp_path, "test")


def test_more_actions_than_frames_are_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="1 frames for"):
        read_clips(folder, frames=1)
