"""`clipper clips`: draw a small data set in MUGEN's file layout, with a preview as PNG and as GIF."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from clipper.arguments import real_number
from clipper.benchmarks.mugen.benchmark import HELD_OUT
from clipper.benchmarks.mugen.clips import contact_sheet, draw_clips, moving_preview
from clipper.benchmarks.mugen.files import ANNOTATIONS, write_clips
from clipper.benchmarks.mugen.world import art_from, own_art
from clipper.cli.console import errors, output, print_json
from clipper.cli.options import LAST_SEED, Json, counted, writable
from clipper.errors import InputError


def clips(
    folder: Annotated[
        Path, typer.Argument(help="Folder to write to. If its name is mugen, `clipper train --data mugen` finds it.")
    ],
    train: Annotated[int, counted("Number of training clips.")] = 500,
    test: Annotated[int, counted("Number of test clips.")] = HELD_OUT,
    frames: Annotated[str, typer.Option(help="Smallest and largest number of frames of a clip.")] = "16-64",
    actions: Annotated[str, typer.Option(help="Smallest and largest number of actions of a text.")] = "3-6",
    distractors: Annotated[
        float, typer.Option(help="Number of objects per screen width that play no part in the actions.")
    ] = 2.0,
    noise: Annotated[float, typer.Option(help="Standard deviation of the pixel noise; pixels are 0 to 1.")] = 0.03,
    sprites: Annotated[Path | None, typer.Option(help="Folder with MUGEN's sprites to draw with.")] = None,
    scale: Annotated[int, counted("Frames are 32 times this many pixels high.", most=64)] = 1,
    seed: Annotated[int, typer.Option(min=0, max=LAST_SEED // 4, help="Seed of everything that is random.")] = 0,
    json: Json = False,
) -> None:
    """Draw clips of a game character and texts about its actions, in the file layout of the data set MUGEN.

    The same seed gives the same files. preview.png shows some clips frame by
    frame, preview.gif plays them.
    """
    real_number(distractors, "--distractors", least=0)
    real_number(noise, "--noise", least=0)
    art = art_from(sprites, scale) if sprites else own_art(scale)
    options: dict[str, Any] = {"frames": _ends(frames), "actions": _ends(actions)}
    options |= {"distractors": distractors, "noise": noise, "art": art}
    notes = [folder / ANNOTATIONS.format(split=split) for split in ("train", "test")]
    sheet, moving = folder / "preview.png", folder / "preview.gif"
    with writable(sheet, moving, *notes), errors.status("drawing"):
        splits = {"train": draw_clips(train, 2 * seed, **options), "test": draw_clips(test, 2 * seed + 1, **options)}
        written = {split: str(write_clips(drawn, folder, split)) for split, drawn in splits.items()}
        contact_sheet(splits["train"], sheet)
        moving_preview(splits["train"], moving)
    written |= {"contact sheet": str(sheet), "moving": str(moving)}
    if json:
        print_json(written)
    else:
        output.print("\n".join(f"{what}: {path}" for what, path in written.items()), soft_wrap=True)


def _ends(text: str) -> tuple[int, int]:
    """The smallest and the largest number: `16-64` is (16, 64), `16` is (16, 16)."""
    found = re.fullmatch("([0-9]{1,9})(?:-([0-9]{1,9}))?", text)
    if found is None:
        raise InputError(f"expected a number such as 32, or two such as 16-64, got {text!r}")
    return int(found[1]), int(found[2] or found[1])
