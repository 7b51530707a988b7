"""Where text goes: results to standard output, everything else to standard error."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

output = Console(highlight=False, markup=False)  # what users name may look like markup
errors = Console(stderr=True, highlight=False, markup=False)


def print_json(document: Any) -> None:
    """One JSON document and nothing else."""
    output.print(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False), soft_wrap=True)


def table(title: str, columns: list[str], rows: list[list[str]]) -> Table:
    """A table whose first column is text and whose other columns are numbers."""
    made = Table(title=title, title_justify="left")
    for i, column in enumerate(columns):
        made.add_column(column, justify="left" if i == 0 else "right", overflow="ellipsis" if i else "fold")
    for row in rows:
        made.add_row(*row)
    return made


@contextmanager
def progress_bars() -> Iterator[Callable[..., None]]:
    """A bar per stage on standard error, with the time left: call it with the stage, done, total, and more to say."""
    columns = (TextColumn("{task.description:<22}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    more = (TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[text]}"))
    with Progress(*columns, *more, console=errors, transient=True) as bars:
        stages: dict[str, Any] = {}

        def report(stage: str, done: int, total: int, text: str = "") -> None:
            if stage not in stages:
                stages[stage] = bars.add_task(stage, total=total or None, text=text)
            bars.update(stages[stage], completed=done, total=total or None, text=text)

        yield report
