"""Scenes: a script and art become frames. The camera follows the character, as in MUGEN."""

from __future__ import annotations

import numpy as np

from clipper.benchmarks.mugen.actions import ACTIONS
from clipper.benchmarks.mugen.art import Art
from clipper.benchmarks.mugen.script import Script

SIDE = 32
"""Pixels of a frame's side, before scaling."""
_GROUND = 27
"""Where the ground begins."""
_MIDDLE = 11
"""The left edge of the character."""
_TALL = 14
_SKIES = np.array([[150, 205, 240], [250, 214, 170], [52, 60, 110], [190, 225, 200], [225, 190, 220]])


def film(script: Script, art: Art, random: np.random.Generator, distractors: float, noise: float) -> np.ndarray:
    """The frames of a clip, `(frames, side, side, 3)` bytes.

    Args:
        script: who is where when, doing what.
        art: how it looks.
        random: for the background, the distractors and the noise.
        distractors: coins, gems, monsters and ladders on a screen's width, on average, that play no part.
        noise: deviation of the pixels' noise, of 255.
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
    """What is in the picture: names with the left and upper edge, from back to front; `feet` is the floor's row."""
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
    """All that the camera passes by, `(side, width, 3)`."""
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
