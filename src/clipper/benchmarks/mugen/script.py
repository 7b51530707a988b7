"""Scripts: what the character of a drawn clip does in each frame, and where it is. Knows no picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clipper.benchmarks.mugen.actions import ACTIONS
from clipper.errors import InputError

SHORTEST = 2
"""Frames that an action takes at least."""
_FORWARD = {"walk": 2, "jump": 1, "fall": 1, "climb": 0, "coin": 2, "gem": 2, "kill": 1, "hit": 0}
"""Pixels a frame, of a picture 32 high."""
_RISE = {"jump": 8, "climb": 8, "fall": -12}
HIGHEST = 12
"""Pixels above the ground."""


@dataclass(frozen=True, eq=False)
class Script:
    """One clip, frame by frame."""

    text: tuple[int, ...]
    """The actions in order."""
    action: np.ndarray
    """`(frames,)`: the gold label of each frame."""
    distance: np.ndarray
    """`(frames,)`: how far the character has come, in pixels."""
    height: np.ndarray
    """`(frames,)`: how high above the ground it is."""
    left: bool
    """Whether it goes to the left."""


def write_script(random: np.random.Generator, frames: tuple[int, int], actions: tuple[int, int]) -> Script:
    """A script of a length and a number of actions in the given ranges, ends included.

    Examples:
        >>> script = write_script(np.random.default_rng(0), frames=(16, 64), actions=(3, 6))
        >>> [ACTIONS[action] for action in script.text], len(script.action)
        (['coin', 'jump', 'fall', 'walk', 'jump'], 57)
    """
    _check(frames, actions)
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
    """Actions of which each can follow the last: who is high up can fall, who is not can rise."""
    text: list[int] = []
    height = 0
    while len(text) < length:
        able = [
            a for a, name in enumerate(ACTIONS) if a not in text[-1:] and 0 <= height + _RISE.get(name, 0) + 4 <= 16
        ]
        text.append(int(random.choice(able)))
        height = int(np.clip(height + _RISE.get(ACTIONS[text[-1]], 0), 0, HIGHEST))
    return text


def _check(frames: Sequence[int], actions: Sequence[int]) -> None:
    if not SHORTEST <= frames[0] <= frames[1] or not 1 <= actions[0] <= actions[1]:
        raise InputError(
            f"expected clips of {SHORTEST} frames or more and of one action or more, the smaller number first, "
            f"got frames {tuple(frames)} and actions {tuple(actions)}"
        )
