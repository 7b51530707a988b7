"""Draws clips: eight actions and their sentences, scripts, art, and the frames of a clip."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from clipper.benchmarks.data.reading import opened_picture
from clipper.errors import InputError, require

ACTIONS = ("walk", "jump", "fall", "climb", "coin", "gem", "kill", "hit")
"""By label. "fall" is a jump down; "coin" and "gem" are collected; in "kill" a monster dies, in "hit" the character."""
_PHRASES = {
    "walk": "walks to the {side}",
    "jump": "jumps up to the {side}",
    "fall": "jumps down to the {side}",
    "climb": "climbs up on a ladder",
    "coin": "collects a coin",
    "gem": "collects a gem",
    "kill": "killed a slime",
    "hit": "killed by a slime",
}
_SPOKEN = {
    "walk": r"walks", "fall": r"jumps down", "jump": r"jumps", "climb": r"climbs", "coin": r"coins?", "gem": r"gems?",
    "hit": r"killed by", "kill": r"killed a",
}  # fmt: skip
"""How each action is recognised in a text, the more specific pattern first."""
_ANY = re.compile("|".join(rf"(?P<{name}>\b{pattern}\b)" for name, pattern in _SPOKEN.items()))


def sentence(actions: Sequence[int], side: str = "right") -> str:
    """The sentence that MUGEN's automatic annotation has for these actions.

    Examples:
        >>> sentence([0, 1, 4])
        'Mugen walks to the right, and jumps up to the right, and collects a coin'
    """
    return "Mugen " + ", and ".join(_PHRASES[ACTIONS[action]].format(side=side) for action in actions)


def actions_of(text: str) -> tuple[int, ...]:
    """The actions in an automatic annotation, in order; repetitions count once.

    Examples:
        >>> text = "Mugen walks to the left, and jumps up to a crate, and jumps down and collects a few coins and a gem"
        >>> [ACTIONS[action] for action in actions_of(text)]
        ['walk', 'jump', 'fall', 'coin', 'gem']
    """
    found = [ACTIONS.index(str(match.lastgroup)) for match in _ANY.finditer(text)]
    if not found:
        raise InputError(
            f"expected a text that tells of actions, as MUGEN's automatic annotations do, got {text!r}; "
            f"the words that name an action are: {', '.join(_SPOKEN.values())}"
        )
    return tuple(action for action, _ in groupby(found))


SHORTEST = 2
"""The fewest frames of an action."""
_FORWARD = {"walk": 2, "jump": 1, "fall": 1, "climb": 0, "coin": 2, "gem": 2, "kill": 1, "hit": 0}
"""How far the character moves forward per frame, in pixels of a frame of side 32."""
_RISE = {"jump": 8, "climb": 8, "fall": -12}
"""How far the character rises during the whole action, in the same pixels."""
HIGHEST = 12
"""The greatest height above the ground, in the same pixels."""


@dataclass(frozen=True, eq=False)
class Script:
    """One clip, frame by frame.

    Attributes:
        text: the actions in order.
        action: `(frames,)`: the gold label of each frame.
        distance: `(frames,)`: how far the character has come, in pixels.
        height: `(frames,)`: how high above the ground it is.
        left: whether it goes to the left.
    """

    text: tuple[int, ...]
    action: np.ndarray
    distance: np.ndarray
    height: np.ndarray
    left: bool


def write_script(random: np.random.Generator, frames: tuple[int, int], actions: tuple[int, int]) -> Script:
    """A script of a length and a number of actions in the given ranges, ends included.

    Examples:
        >>> script = write_script(np.random.default_rng(0), frames=(16, 64), actions=(3, 6))
        >>> [ACTIONS[action] for action in script.text], len(script.action)
        (['coin', 'jump', 'fall', 'walk', 'jump'], 57)
    """
    if not SHORTEST <= frames[0] <= frames[1] or not 1 <= actions[0] <= actions[1]:
        raise InputError(
            f"expected clips of {SHORTEST} frames or more and of one action or more, the smaller number first, "
            f"got frames {tuple(frames)} and actions {tuple(actions)}"
        )
    length = int(random.integers(frames[0], frames[1] + 1))
    most = min(actions[1], length // SHORTEST)
    text = _text(random, int(random.integers(min(actions[0], most), most + 1)))
    spans = SHORTEST + random.multinomial(length - SHORTEST * len(text), np.full(len(text), 1 / len(text)))
    height, at = [], 0.0
    for action, span in zip(text, spans, strict=True):
        to = float(np.clip(at + _RISE.get(ACTIONS[action], 0), 0, HIGHEST))
        height.append(np.linspace(at, to, span + 1)[1:])
        at = to
    step = np.array([_FORWARD[ACTIONS[action]] for action in text])
    return Script(
        text=tuple(int(action) for action in text),
        action=np.repeat(text, spans),
        distance=np.cumsum(np.repeat(step, spans)),
        height=np.concatenate(height).round().astype(int),
        left=bool(random.random() < 0.5),
    )


def _text(random: np.random.Generator, length: int) -> list[int]:
    """Random actions, each possible after the one before: the character must be high up to fall, and low to rise."""
    text: list[int] = []
    height = 0
    while len(text) < length:
        able = [
            a for a, name in enumerate(ACTIONS) if a not in text[-1:] and 0 <= height + _RISE.get(name, 0) + 4 <= 16
        ]
        text.append(int(random.choice(able)))
        height = int(np.clip(height + _RISE.get(ACTIONS[text[-1]], 0), 0, HIGHEST))
    return text


_ART = Path(__file__).with_name("art.json")
"""Small pictures, a letter for each pixel, and the colours of the letters; and where MUGEN's own art lies among the
assets of its repository."""


@dataclass(frozen=True, eq=False)
class Art:
    """What clips are drawn with.

    Attributes:
        pictures: by name, `(height, width, 4)` bytes.
        backdrops: wide background pictures `(32 * scale, width, 3)`; if there are none, hills are drawn.
        scale: frames are `32 * scale` pixels high.
    """

    pictures: dict[str, np.ndarray]
    backdrops: tuple[np.ndarray, ...] = ()
    scale: int = 1


def own_art(scale: int = 1) -> Art:
    """Clipper's own art.

    Examples:
        >>> own_art().pictures["walk1"].shape
        (14, 10, 4)
    """
    art = _art()
    colours = {
        name: [[art["palette"][letter] for letter in row] for row in rows] for name, rows in art["pictures"].items()
    }
    drawn = {name: np.array(picture, dtype=np.uint8) for name, picture in colours.items()}
    return Art({name: each.repeat(scale, 0).repeat(scale, 1) for name, each in drawn.items()}, scale=scale)


def art_from(folder: str | Path, scale: int = 1) -> Art:
    """MUGEN's sprites from a folder, at the sizes of `own_art`."""
    pictures = own_art(scale).pictures
    for name, file in _art()["sprites"].items():
        height, width = pictures[name].shape[:2]
        pictures[name] = _shrunk(_opened(Path(folder) / file, "RGBA"), width, height)
    wide = (_opened(Path(folder) / file, "RGB") for file in _art()["backdrops"])
    return Art(pictures, tuple(_shrunk(image, 57 * scale, 32 * scale) for image in wide), scale)


@cache
def _art() -> dict[str, Any]:
    art: dict[str, Any] = json.loads(_ART.read_text(encoding="utf-8"))
    return art


def _opened(path: Path, mode: str) -> Any:
    remedy = "expected the folder `assets` of MUGEN's repository, or a part of it with the same folders inside"
    with opened_picture(path, ("PNG",), remedy) as picture:
        opened = picture.convert(mode)
    box = opened.getchannel("A").getbbox() if mode == "RGBA" else None
    return opened.crop(box) if box else opened


def _shrunk(picture: Any, width: int, height: int) -> np.ndarray:
    image: Any = require("PIL.Image", extra="benchmarks")
    return np.asarray(picture.resize((width, height), image.Resampling.BOX))


SIDE = 32
"""Pixels of a frame's side, before scaling."""
_GROUND = 27
"""The row of pixels where the ground begins."""
_MIDDLE = 11
"""The left edge of the character."""
_TALL = 14
"""The height of the character."""
_SKIES = np.array([[150, 205, 240], [250, 214, 170], [52, 60, 110], [190, 225, 200], [225, 190, 220]])


def film(script: Script, art: Art, random: np.random.Generator, distractors: float, noise: float) -> np.ndarray:
    """The frames of a clip, `(frames, side, side, 3)` bytes.

    Args:
        script: position and action of the character in each frame.
        art: the pictures to draw with.
        random: for the background, the distractors and the noise.
        distractors: the average number of coins, gems, monsters and ladders per screen that play no part.
        noise: deviation of the pixels' noise, as a share of 255.
    """
    scale = art.scale
    world = _world(int(script.distance[-1]) + SIDE, art, random, distractors)
    frames: np.ndarray = np.stack([_frame(script, i, world, art) for i in range(len(script.action))])
    if script.left:
        frames = frames[:, :, ::-1]
    if noise:
        frames = frames + random.normal(0, 255 * noise, (len(frames), SIDE * scale, SIDE * scale, 1))
    return np.asarray(np.clip(frames, 0, 255), dtype=np.uint8)


def _frame(script: Script, number: int, world: np.ndarray, art: Art) -> np.ndarray:
    scale, name = art.scale, ACTIONS[script.action[number]]
    start = int(script.distance[number] - script.distance[0]) * scale
    canvas = world[:, start : start + SIDE * scale].copy()
    feet = _GROUND - int(script.height[number])
    began = int(np.flatnonzero(script.action[: number + 1] != script.action[number])[-1:].sum())
    for picture, x, y in _cast(name, number - began, feet, script.height[number] > 0):
        _paste(canvas, art.pictures[picture], x * scale, y * scale)
    return canvas


def _cast(name: str, since: int, feet: int, high: bool) -> list[tuple[str, int, int]]:
    """The pictures in a frame, from back to front: name, left edge and upper edge. `feet` is the row of the floor."""
    top, step = feet - _TALL, since // 2 % 2
    walking = ("walk1" if step else "walk2", _MIDDLE, top)
    ledge = [("ledge", _MIDDLE - 2, feet)] if high else []
    return {
        "walk": [*ledge, walking],
        "jump": [("jump", _MIDDLE, top)],
        "fall": [("jump", _MIDDLE, top)],
        "climb": [*(("ladder", _MIDDLE, y) for y in range(feet - 16, _GROUND, 8)), (f"climb{step + 1}", _MIDDLE, top)],
        "coin": [*ledge, walking, ("coin", _MIDDLE + 7, top + 2 - step)],
        "gem": [*ledge, walking, ("gem", _MIDDLE + 7, top + 2 - step)],
        "kill": [*ledge, ("dead", _MIDDLE + 1, feet - 7), ("jump", _MIDDLE, top - 3 + step)],
        "hit": [*ledge, ("monster", _MIDDLE + 8, feet - 7), ("hit", _MIDDLE - step, top)],
    }[name]


def _world(width: int, art: Art, random: np.random.Generator, distractors: float) -> np.ndarray:
    """The scenery of a whole clip: background, ground and distractors, `(side, width, 3)`."""
    scale = art.scale
    world = _backdrop(width * scale, art, random)
    ground = art.pictures["ground"]
    for x in range(0, width * scale, ground.shape[1]):
        _paste(world, ground, x, _GROUND * scale)
    for _ in range(random.poisson(distractors * width / SIDE)):
        name = str(random.choice(["coin", "gem", "monster", "ladder"]))
        floor = _GROUND if name in ("monster", "ladder") else int(random.integers(8, _GROUND))
        height = art.pictures[name].shape[0]
        _paste(world, art.pictures[name], int(random.integers(width)) * scale, floor * scale - height)
    return world


def _backdrop(width: int, art: Art, random: np.random.Generator) -> np.ndarray:
    side = SIDE * art.scale
    if art.backdrops:
        wide = art.backdrops[int(random.integers(len(art.backdrops)))]
        both = np.concatenate([wide, wide[:, ::-1]], axis=1)  # mirrored, so that it repeats without a seam
        return np.take(both, int(random.integers(both.shape[1])) + np.arange(width), axis=1, mode="wrap")
    sky = _SKIES[int(random.integers(len(_SKIES)))]
    light = np.linspace(1, 0.75, side)[:, None, None]
    world = np.broadcast_to(sky * light, (side, width, 3)).copy()
    x = np.arange(width) / art.scale
    for shade in (0.85, 0.7):
        hills = 18 + 5 * np.sin(x / random.uniform(5, 14) + random.uniform(0, 6)) * random.uniform(0.4, 1)
        world[np.arange(side)[:, None] > hills * art.scale] *= shade
    return world.astype(np.uint8)


def _paste(canvas: np.ndarray, picture: np.ndarray, x: int, y: int) -> None:
    """Lay a picture over a canvas; what falls outside is cut off."""
    top, left = max(0, y), max(0, x)
    part = picture[top - y : canvas.shape[0] - y, left - x : canvas.shape[1] - x]
    if part.size:
        under = canvas[top : top + part.shape[0], left : left + part.shape[1]]
        alpha = part[..., 3:].astype(np.float32) / 255
        under[:] = (under * (1 - alpha) + part[..., :3] * alpha).astype(np.uint8)
