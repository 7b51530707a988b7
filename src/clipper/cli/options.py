"""What several commands take in the same way."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

MOST = 2**31 - 1
"""The largest number that a command counts to; the tensors behind it would be larger than any memory."""
LAST_SEED = 2**62
"""Seeds are 64-bit numbers, and some are counted on from."""
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
DataRoot = Annotated[
    Path | None,
    typer.Option("--data-root", exists=True, file_okay=False, help="Folder with the data sets; default $CLIPPER_DATA."),
]
