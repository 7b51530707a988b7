"""`clipper review`: answer the questions that would tell most, on a page of this machine alone."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from clipper.cli.console import errors, output
from clipper.errors import require
from clipper.labelling.review import Review, serve
from clipper.report.page import templates


def review(
    labels: Annotated[Path, typer.Argument(help="What clipper label wrote, .parquet or .arrow.")],
    answers: Annotated[
        Path | None, typer.Option("--answers", "-a", help="CSV that answers go to; default: beside the labels.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of this machine; 0 for a free one.")] = 0,
    browse: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
) -> None:
    """Answer a few questions about labels in the browser; each answer is kept, and the labels get better.

    A key answers, s skips, w says that the target is wrong. Ctrl-C ends it; nothing is lost. `clipper label --known`
    takes the answers.
    """
    require("uvicorn", extra="review")
    with errors.status("labelling"):
        sitting = Review.of(labels, answers)
        sitting.infer()

    def ready(link: str) -> None:
        output.print(f"answer at {link}\nCtrl-C ends it; answers go to {sitting.answers}", soft_wrap=True)
        if browse:
            webbrowser.open(link)

    try:
        serve(sitting, templates().get_template("review.html").render(title="Review"), port, ready)
    finally:
        output.print(
            f"{sitting.answered} answers in {sitting.answers}; use them with clipper label … --known {sitting.answers}",
            soft_wrap=True,
        )
