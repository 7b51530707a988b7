"""Output: results go to standard output, everything else goes to standard error."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

output = Console(highlight=False, markup=False)  # the user's file names may look like markup
errors = Console(stderr=True, highlight=False, markup=False)


def print_json(document: Any) -> None:
    """Print a JSON document to standard output.

    Args:
        document: any value that JSON can represent; NaN and infinity are errors.
    """
    output.print(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False), soft_wrap=True)


def table(title: str, columns: list[str], rows: list[list[str]]) -> Table:
    """A table for the console: the first column is text, the other columns are numbers.

    Args:
        title: the title above the table.
        columns: the heads of the columns; if all of them are empty, the table has no head.
        rows: the cells of each row, as text.
    """
    made = Table(title=title, title_justify="left", show_header=any(columns))
    for i, column in enumerate(columns):
        made.add_column(column, justify="left" if i == 0 else "right", overflow="ellipsis" if i else "fold")
    for row in rows:
        made.add_row(*row)
    return made


@contextmanager
def progress_bars() -> Iterator[Callable[..., None]]:
    """Progress bars on standard error, one for each stage, with the time left.

    Yields:
        A function of the stage, the number done, the total, and (optional) a text to show behind the bar.
    """
    columns = (TextColumn("{task.description:<22}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    more = (TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[text]}"))
    with Progress(*columns, *more, console=errors, transient=True) as bars:
        stages: dict[str, Any] = {}

        def report(stage: str, done: int, total: int, text: str = "") -> None:
            if stage not in stages:
                stages[stage] = bars.add_task(stage, total=total or None, text=text)
            bars.update(stages[stage], completed=done, total=total or None, text=text)

        yield report
