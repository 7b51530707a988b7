"""`clipper review`: answer the questions that would help most, on a local web page."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from clipper.cli.console import errors, output
from clipper.errors import require
from clipper.labelling.review import Review, serve
from clipper.report.page import templates


def review(
    labels: Annotated[Path, typer.Argument(help="Labels that clipper label wrote, .parquet or .arrow.")],
    answers: Annotated[
        Path | None, typer.Option("--answers", "-a", help="CSV to write answers to; default: beside the labels.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0 for any free one.")] = 0,
    browse: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
) -> None:
    """Answer a few questions about doubtful labels in the browser. Your answers improve the other labels.

    Press the key of a label to answer, s to skip, w to say that the target is
    wrong. Ctrl-C ends the review. Answers are saved at once; `clipper label
    --known` uses them.
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
        if sitting.running:  # its thread cannot be stopped, and the interpreter must not end before it
            sys.stdout.flush()
            os._exit(130)
