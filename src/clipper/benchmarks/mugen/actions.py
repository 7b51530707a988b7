"""The eight actions, and the sentences in which MUGEN speaks of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from clipper.errors import InputError

ACTIONS = ("walk", "jump", "fall", "climb", "coin", "gem", "kill", "hit")
"""By label. To fall is to jump down; coin and gem are collected; a monster is killed, or hits."""
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
"""How each action is recognised, the more specific first."""
_ANY = re.compile("|".join(rf"(?P<{name}>\b{pattern}\b)" for name, pattern in _SPOKEN.items()))


def sentence(actions: Sequence[int], side: str = "right") -> str:
    """What MUGEN's automatic annotation would say of these actions.

    Examples:
        >>> sentence([0, 1, 4])
        'Mugen walks to the right, and jumps up to the right, and collects a coin'
    """
    return "Mugen " + ", and ".join(_PHRASES[ACTIONS[action]].format(side=side) for action in actions)


def actions_of(text: str) -> tuple[int, ...]:
    """The actions that an automatic annotation tells of, in order; repetitions are one.

    Examples:
        >>> said = "Mugen walks to the left, and jumps up to a crate, and jumps down and collects a few coins and a gem"
        >>> [ACTIONS[action] for action in actions_of(said)]
        ['walk', 'jump', 'fall', 'coin', 'gem']
    """
    found = [ACTIONS.index(str(match.lastgroup)) for match in _ANY.finditer(text)]
    if not found:
        raise InputError(
            f"expected a text that tells of actions, as MUGEN's automatic annotations do, got {text!r}; "
            f"what is understood: {', '.join(_SPOKEN.values())}"
        )
    return tuple(action for action, _ in groupby(found))
