"""Clips on disk in MUGEN's layout: a list of annotations for each split, a video for each clip.

`coinrun_dataset_jsons/release/train.json` and `test.json` list the videos, as in MUGEN. Drawn clips are written in the
same layout, losslessly, as animated PNGs, with one more file that MUGEN does not have: the action of every frame.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from clipper.benchmarks.data.reading import MOST_PIXELS, inside, opened_picture, read_json
from clipper.benchmarks.data.sources import Form, Source
from clipper.benchmarks.mugen.clips import MILLISECONDS, Clips, pack
from clipper.benchmarks.mugen.world import ACTIONS, actions_of, sentence
from clipper.errors import FileError, InputError, require
from clipper.files import written_whole

ANNOTATIONS = "coinrun_dataset_jsons/release/{split}.json"
MUGEN_FILES = Source(
    "mugen",
    (Form("MUGEN's annotations", {ANNOTATIONS.format(split=split): "" for split in ("train", "test")}),),
    "get the 3.2 s videos of MUGEN (mugen-org.github.io/download), or draw clips in its layout: "
    "`clipper clips FOLDER/mugen`",
)
_STILLS = {".png": ("PNG",), ".gif": ("GIF",), ".webp": ("WEBP",)}
"""Videos that Pillow reads; all others are left to PyAV."""
_CONTAINERS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpeg,mpegts,flv,ogg"
"""The formats that PyAV may read. Playlists are not among them, because they would make it open other files."""
_LONGEST = 10_000
"""The most frames of a video; MUGEN's have 96."""
_REMEDY = "expected MUGEN's folder, or one that `clipper clips` has written"


def write_clips(clips: Clips, folder: str | Path, split: str) -> Path:
    """Write clips as one split of a data set; return the file of their annotations."""
    folder = Path(folder)
    entries = [_write_one(clips, i, folder, f"drawn/{{}}/{split}_{i:05d}") for i in range(len(clips))]
    metadata = {"version": "drawn", "type": "drawn", "data_folder": str(folder.resolve()), "split": split}
    path = folder / ANNOTATIONS.format(split=split)
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path, replace=True) as temporary:
        temporary.write_text(json.dumps({"metadata": metadata, "data": entries}, indent=1), encoding="utf-8")
    return path


def _write_one(clips: Clips, i: int, folder: Path, name: str) -> dict[str, Any]:
    image: Any = require("PIL.Image", extra="benchmarks")
    length = int(clips.lengths[i])
    video, notes = name.format("videos") + ".png", name.format("video_metadata") + ".json"
    for file in (video, notes):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
    first, *rest = [image.fromarray(frame) for frame in clips.frames[i, :length].permute(0, 2, 3, 1).numpy()]
    with written_whole(folder / video, replace=True) as temporary:
        first.save(temporary, "PNG", save_all=True, append_images=rest, duration=MILLISECONDS, default_image=False)
    gold = [] if clips.gold is None else [ACTIONS[action] for action in clips.gold[i, :length].tolist()]
    with written_whole(folder / notes, replace=True) as temporary:
        temporary.write_text(json.dumps({"actions": gold}), encoding="utf-8")
    spoken = {"type": "auto", "text": sentence(clips.texts[i])}
    return {"video": {"id": Path(video).stem, "video_file": video, "json_file": notes, "num_frames": length},
            "annotations": [spoken]}  # fmt: skip


def read_clips(
    folder: str | Path,
    split: str = "train",
    *,
    clips: int | None = None,
    frames: int = 32,
    side: int = 32,
    seed: int | None = None,
) -> Clips:
    """Read one split of MUGEN, or of drawn clips.

    Args:
        folder: holds `coinrun_dataset_jsons`; videos are looked for in the subfolder that the annotations name, then
            in the folder itself, and never outside it.
        split: `"train"`, `"val"` or `"test"`.
        clips: at most this many; all if not given.
        frames: take this many frames of a longer video, evenly spaced: 32 of MUGEN's 96 are every third.
        side: frames are shrunk to this many pixels in height and width; drawn clips have 32.
        seed: draws the clips at random; the first ones are taken if not given.
    """
    path = Path(folder) / ANNOTATIONS.format(split=split)
    home, entries = _annotations(path, Path(folder))
    order = range(len(entries)) if seed is None else np.random.default_rng(seed).permutation(len(entries))
    entries = [entries[i] for i in order[:clips]]
    texts = [actions_of(_automatic(entry, path)) for entry in entries]
    found = [_video(entry["video"], path, home, Path(folder)) for entry in entries]
    videos, gold = [], []
    for place, entry, text in zip(found, entries, texts, strict=True):
        video = _read_video(place, side)
        kept = np.linspace(0, len(video) - 1, min(frames, len(video))).round().astype(int)
        if len(kept) < len(text):
            raise InputError(f"{place} has {len(kept)} frames for {len(text)} actions; take more frames per video")
        videos.append(video[kept])
        gold.append(_gold(entry["video"], path, home, Path(folder), len(video))[kept])
    return pack(videos, texts, gold if all((labels >= 0).all() for labels in gold) else None)


def _annotations(path: Path, folder: Path) -> tuple[Path, list[dict[str, Any]]]:
    """The folder of videos that a file of annotations names (the data folder if it is not inside), and the clips."""
    document = read_json(path, _REMEDY)
    metadata = document.get("metadata", {}) if isinstance(document, dict) else None
    entries = document.get("data") if isinstance(document, dict) else None
    if not isinstance(metadata, dict) or not isinstance(entries, list):
        raise FileError(f"{path} is no list of MUGEN's annotations: expected 'metadata' and 'data' in it; {_REMEDY}")
    if not entries:
        raise FileError(f"{path} lists no clips; {_REMEDY}")
    for number, entry in enumerate(entries):
        if not (
            isinstance(entry, dict)
            and isinstance(entry.get("video"), dict)
            and isinstance(entry.get("annotations"), list)
            and all(isinstance(note, dict) for note in entry["annotations"])
        ):
            raise FileError(f"clip {number} in {path} has no 'video' or no 'annotations'; {_REMEDY}")
    home = folder.joinpath(str(metadata.get("data_folder", "")).replace("\0", ""))
    return (home if _within(home, folder) else folder), entries


def _within(place: Path, folder: Path) -> bool:
    """Whether a path is inside a folder. It may not be: drawn clips that were moved still name their old folder."""
    try:
        return place.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # links in a circle
        return False


def _automatic(entry: dict[str, Any], path: Path) -> str:
    spoken = [note.get("text") for note in entry["annotations"] if note.get("type") == "auto"]
    if not spoken or not isinstance(spoken[0], str):
        raise FileError(
            f"clip {ascii(entry['video'].get('id'))[:100]} in {path} has no automatic annotation (type auto); the "
            "order of actions is read from these"
        )
    return spoken[0]


def _found(video: dict[str, Any], key: str, path: Path, *homes: Path) -> Path | None:
    """The file that an annotation names, in the first folder that has it; None if no folder has it."""
    places = [inside(home, video.get(key), str(path)) for home in homes]
    return next((place for place in places if os.path.isfile(place)), None)  # unlike Path.is_file, never an error


def _video(video: dict[str, Any], path: Path, home: Path, folder: Path) -> Path:
    place = _found(video, "video_file", path, home, folder)
    if place is None:
        looked = " and ".join(map(str, dict.fromkeys([home, folder])))
        raise FileError(f"the video {ascii(video['video_file'])[:200]} was not found; looked in {looked}; {_REMEDY}")
    return place


def _gold(video: dict[str, Any], path: Path, home: Path, folder: Path, frames: int) -> np.ndarray:
    """The action of each frame; -1 for all frames if no file has them."""
    unknown = np.full(frames, -1)
    place = _found(video, "json_file", path, home, folder) if "json_file" in video else None
    notes = {} if place is None else read_json(place, _REMEDY)
    noted = notes.get("actions") if isinstance(notes, dict) else None
    if not isinstance(noted, list) or len(noted) != frames:
        return unknown
    if any(action not in ACTIONS for action in noted):
        raise FileError(f"expected the actions {', '.join(ACTIONS)} in the notes of {video['json_file']}; {_REMEDY}")
    return np.array([ACTIONS.index(action) for action in noted])


def _read_video(path: Path, side: int) -> np.ndarray:
    """All frames of a video, shrunk: `(frames, side, side, 3)`."""
    image: Any = require("PIL.Image", extra="benchmarks")
    frames: list[np.ndarray] = []
    for frame in _frames(path):
        if len(frames) == _LONGEST:
            raise FileError(f"expected a clip of at most {_LONGEST:,} frames in {path}, got a longer one; cut it")
        frames.append(np.asarray(frame.resize((side, side), image.Resampling.BOX)))
    if not frames:
        raise FileError(f"{path} has no frames; {_REMEDY}")
    return np.stack(frames)


def _frames(path: Path) -> Iterator[Any]:
    """The pictures of a video, one after the other."""
    if path.suffix.lower() in _STILLS:
        sequence: Any = require("PIL.ImageSequence", extra="benchmarks")
        with opened_picture(path, _STILLS[path.suffix.lower()], _REMEDY) as opened:
            yield from (frame.convert("RGB") for frame in sequence.Iterator(opened))
    else:
        av: Any = require("av", extra="video")
        try:
            with av.open(str(path), options={"format_whitelist": _CONTAINERS}) as opened:
                for frame in opened.decode(video=0):
                    if frame.width * frame.height > MOST_PIXELS:
                        raise FileError(f"frames of {frame.width:,} × {frame.height:,} pixels are too large")
                    yield frame.to_image()
        except Exception as error:  # FFmpeg's errors are of many kinds
            raise FileError(f"{path} cannot be read ({error or type(error).__name__}); {_REMEDY}") from error
