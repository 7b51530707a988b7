"""Clips on disk in MUGEN's layout: a list of annotations for each split, a video for each clip.

`coinrun_dataset_jsons/release/train.json` and `test.json` name the videos, as they come with MUGEN. Drawn clips are
written in the same way, losslessly, as animated PNGs; beside them lies what no annotation of MUGEN's says: the action
of every frame.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from clipper.benchmarks.mugen.actions import ACTIONS, actions_of, sentence
from clipper.benchmarks.mugen.clips import Clips, pack
from clipper.errors import FileError, InputError, require
from clipper.files import written_whole

ANNOTATIONS = "coinrun_dataset_jsons/release/{split}.json"
_STILLS = (".png", ".gif", ".webp")
"""Videos that Pillow reads; all others are left to PyAV."""
_MILLISECONDS = 100


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
        first.save(temporary, "PNG", save_all=True, append_images=rest, duration=_MILLISECONDS, default_image=False)
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
        folder: holds `coinrun_dataset_jsons`; videos are sought where the annotations say, then in the folder itself.
        split: `"train"`, `"val"` or `"test"`.
        clips: at most so many; all if not given.
        frames: of a longer video so many, at equal distances: 32 of MUGEN's 96 are every third.
        side: pixels to which frames are shrunk; drawn clips are 32.
        seed: draw the clips with it; the first ones if not given.
    """
    path = Path(folder) / ANNOTATIONS.format(split=split)
    document = _json(path)
    try:
        home = Path(str(document["metadata"].get("data_folder", "")))
        entries = _chosen(document["data"], clips, seed)
        told = [actions_of(_automatic(entry, path)) for entry in entries]
        found = [_video(entry["video"], home, Path(folder)) for entry in entries]
    except (KeyError, TypeError) as error:
        raise FileError(f"{path} is no list of MUGEN's annotations ({error!r})") from error
    if not entries:
        raise FileError(f"{path} lists no clips")
    videos, gold = [], []
    for place, entry, text in zip(found, entries, told, strict=True):
        video = np.stack([_fitted(frame, side) for frame in _frames(place)])
        kept = np.linspace(0, len(video) - 1, min(frames, len(video))).round().astype(int)
        if len(kept) < len(text):
            raise InputError(f"{place} has {len(kept)} frames for {len(text)} actions; take more frames of a video")
        videos.append(video[kept])
        gold.append(_gold(entry["video"], home, Path(folder), len(video))[kept])
    return pack(videos, told, gold if all((labels >= 0).all() for labels in gold) else None)


def _chosen(entries: list[Any], clips: int | None, seed: int | None) -> list[Any]:
    order = range(len(entries)) if seed is None else np.random.default_rng(seed).permutation(len(entries))
    return [entries[i] for i in order[:clips]]


def _automatic(entry: dict[str, Any], path: Path) -> str:
    spoken = [note["text"] for note in entry["annotations"] if note.get("type") == "auto"]
    if not spoken:
        raise FileError(
            f"clip {entry['video'].get('id')} in {path} has no automatic annotation (type auto); the order of actions "
            "is read from these"
        )
    return str(spoken[0])


def _video(video: dict[str, Any], *homes: Path) -> Path:
    places = [home / str(video["video_file"]) for home in homes]
    for place in places:
        if place.exists():
            return place
    raise FileError(f"the video {video['video_file']} was not found; looked for {', '.join(map(str, places))}")


def _gold(video: dict[str, Any], home: Path, folder: Path, frames: int) -> np.ndarray:
    """The action of each frame where it was noted, -1 elsewhere."""
    unknown = np.full(frames, -1)
    notes = str(video.get("json_file"))
    noted = next((_json(at / notes).get("actions") for at in (home, folder) if (at / notes).is_file()), None)
    if not noted or len(noted) != frames:
        return unknown
    return np.array([ACTIONS.index(action) for action in noted])


def _frames(path: Path) -> Iterator[Any]:
    """The pictures of a video, one after the other."""
    if path.suffix.lower() in _STILLS:
        image: Any = require("PIL.Image", extra="benchmarks")
        sequence: Any = require("PIL.ImageSequence", extra="benchmarks")
        with image.open(path) as opened:
            yield from (frame.convert("RGB") for frame in sequence.Iterator(opened))
    else:
        av: Any = require("av", extra="video")
        with av.open(str(path)) as opened:
            yield from (frame.to_image() for frame in opened.decode(video=0))


def _fitted(picture: Any, side: int) -> np.ndarray:
    image: Any = require("PIL.Image", extra="benchmarks")
    if picture.size != (side, side):
        picture = picture.resize((side, side), image.Resampling.BOX)
    return np.asarray(picture)


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FileError(
            f"{path} cannot be read ({error}); expected MUGEN's folder, or one that `clipper clips` has written"
        ) from error
