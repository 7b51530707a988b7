"""Art: small pictures with transparency, drawn here letter by letter, or taken from a folder of MUGEN's sprites."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clipper.benchmarks.data.reading import opened_picture
from clipper.errors import require

_PALETTE = {
    ".": (0, 0, 0, 0), "Y": (247, 196, 60, 255), "D": (92, 58, 18, 255), "W": (255, 255, 255, 255),
    "K": (20, 20, 24, 255), "R": (214, 60, 52, 255), "G": (88, 168, 72, 255), "g": (52, 110, 48, 255),
    "C": (255, 214, 70, 255), "c": (196, 140, 24, 255), "B": (64, 140, 214, 255), "b": (32, 84, 150, 255),
    "L": (150, 98, 48, 255), "P": (222, 92, 150, 255), "p": (150, 40, 92, 255),
}  # fmt: skip
_HEAD = "...DDDD... ..DYYYYD.. .DYYYWWYD. .DYYYWKYD. .DYYYYYYD. ..DYYYYD.."
_BACK = "...DDDD... ..DYYYYD.. .DYYYYYYD. .DYYYYYYD. .DYYYYYYD. ..DYYYYD.."
_LEFT, _RIGHT = f"Y.........{_BACK[10:]}", f".........Y{_BACK[10:]}"  # a hand up
_HURT = "...DDDD... ..DYYYYD.. .DYKYYKYD. .DYYYYYYD. .DYYKKYYD. ..DYYYYD.."
_PICTURES = {
    "walk1": f"{_HEAD} .DYYYYYYD. DYDYYYYDYD .D.YYYY.D. ..DYYYYD.. ..DYDDYD.. .DYD..DYD. DYD....DYD DD......DD",
    "walk2": f"{_HEAD} .DYYYYYYD. .DYYYYYYD. .DDYYYYDD. ..DYYYYD.. ..DYYYYD.. ...DYYD... ...DYYD... ...DDDDD..",
    "jump": f"{_HEAD} DYYYYYYYYD YD.YYYY.DY D..YYYY..D ..DYYYYD.. .DYYDDYYD. .DYD..DYD. ..DD..DD.. ..........",
    "climb1": f"{_LEFT} YDYYYYYYD. .DDYYYYDYD ...YYYY.DY ..DYYYYD.. ..DYDDYD.. ..DYD.DYD. ..DD..DYD. ......DD..",
    "climb2": f"{_RIGHT} .DYYYYYYDY DYDYYYYDD. YD.YYYY... ..DYYYYD.. ..DYDDYD.. .DYD.DYD.. .DYD..DD.. ..DD......",
    "hit": f"{_HURT} DDYYYYYYDD YYDYYYYDYY ...YYYY... ..DYYYYD.. .DYYDDYYD. DYYD..DYYD DYD....DYD DD......DD",
    "coin": "..ccc.. .cCCCc. cCCWCCc cCWCCCc cCCCCCc .cCCCc. ..ccc..",
    "gem": "...p... ..pPp.. .pPWPp. pPWPPPp .pPPPp. ..pPp.. ...p...",
    "monster": "...gggg... ..gGGGGg.. .gGWGGWGg. .gGKGGKGg. gGGGGGGGGg gGGGRRGGGg gggggggggg",
    "dead": ".......... .......... .......... .......... ..gggggg.. gGKGGGGKGg gggggggggg",
    "ladder": "LL......LL LLLLLLLLLL LL......LL LL......LL LLLLLLLLLL LL......LL LL......LL LL......LL",
    "ledge": "gGGGGGGGGGGGGg LLLLLLLLLLLLLL",
    "ground": "gGgGGgGG LLLLLLLL LLbLLLLL LLLLLbLL LLLLLLLL LLbLLLLL",
    "star": "W..W..W ...C... W.C.C.W .C.W.C. W.C.C.W ...C... W..W..W",
}
_FILES = {
    "walk1": "kenneyLarge/Players/128x256_no_helmet/Yellow/alienYellow_walk1.png",
    "walk2": "kenneyLarge/Players/128x256_no_helmet/Yellow/alienYellow_walk2.png",
    "jump": "kenneyLarge/Players/128x256_no_helmet/Yellow/alienYellow_jump.png",
    "climb1": "kenneyLarge/Players/128x256_no_helmet/Yellow/alienYellow_climb1.png",
    "climb2": "kenneyLarge/Players/128x256_no_helmet/Yellow/alienYellow_climb2.png",
    "hit": "kenneyLarge/Players/128x256_no_helmet/Yellow/alienYellow_hit.png",
    "coin": "kenneyLarge/Items/coinGold.png",
    "gem": "kenneyLarge/Items/gemRed.png",
    "monster": "kenneyLarge/Enemies/slimeBlue.png",
    "dead": "kenneyLarge/Enemies/slimeBlue_dead.png",
    "ladder": "kenney/Tiles/ladderMid.png",
    "ground": "kenney/Ground/Planet/planetMid.png",
}
"""MUGEN's own art, as it lies in its repository's assets; what is not among it is drawn here."""
BACKDROPS = ("backgrounds/background-2/airadventurelevel4.png", "backgrounds/spacebackgrounds-0/milky_way_01.png")


@dataclass(frozen=True, eq=False)
class Art:
    """Pictures by name, `(height, width, 4)` bytes, for frames that are `32 * scale` pixels high."""

    pictures: dict[str, np.ndarray]
    backdrops: tuple[np.ndarray, ...] = ()
    """Wide pictures `(32 * scale, width, 3)` to stand behind everything; hills are drawn where there are none."""
    scale: int = 1


def own_art(scale: int = 1) -> Art:
    """What is drawn here.

    Examples:
        >>> own_art().pictures["walk1"].shape
        (14, 10, 4)
    """
    drawn = {name: _drawn(letters).repeat(scale, 0).repeat(scale, 1) for name, letters in _PICTURES.items()}
    return Art(drawn, scale=scale)


def art_from(folder: str | Path, scale: int = 1) -> Art:
    """MUGEN's sprites from a folder, at the sizes of `own_art`."""
    pictures = own_art(scale).pictures
    for name, file in _FILES.items():
        height, width = pictures[name].shape[:2]
        pictures[name] = _shrunk(_opened(Path(folder) / file, "RGBA"), width, height)
    wide = (_opened(Path(folder) / file, "RGB") for file in BACKDROPS)
    return Art(pictures, tuple(_shrunk(image, 57 * scale, 32 * scale) for image in wide), scale)


def _drawn(letters: str) -> np.ndarray:
    rows = [[_PALETTE[letter] for letter in row] for row in letters.split()]
    return np.array(rows, dtype=np.uint8)


def _opened(path: Path, mode: str) -> Any:
    remedy = "expected the folder `assets` of MUGEN's repository, or a part of it with the same folders inside"
    with opened_picture(path, ("PNG",), remedy) as picture:
        opened = picture.convert(mode)
    box = opened.getchannel("A").getbbox() if mode == "RGBA" else None
    return opened.crop(box) if box else opened


def _shrunk(picture: Any, width: int, height: int) -> np.ndarray:
    image: Any = require("PIL.Image", extra="benchmarks")
    return np.asarray(picture.resize((width, height), image.Resampling.BOX))
