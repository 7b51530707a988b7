"""Self-contained pages: a Jinja2 template with its styles and scripts in one HTML file that opens from disk."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from clipper.files import make_folder, written_whole


def write_page(path: str | Path, template: str, **values: Any) -> None:
    """Render a template of `clipper.report` and write the page; an older page is replaced.

    Args:
        path: the file to write; missing folders are created.
        template: its name, such as "run.html".
        values: the variables of the template. Text is escaped.
    """
    write_text(Path(path), templates().get_template(template).render(**values))


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically; an older one is replaced."""
    make_folder(path.parent)
    with written_whole(path, replace=True) as temporary:
        temporary.write_text(text, encoding="utf-8")


@lru_cache
def templates() -> Environment:
    """The templates; they escape text, and an undefined variable is an error."""
    found = Environment(
        loader=PackageLoader("clipper.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.globals["asset"] = _asset
    found.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False, "allow_nan": False}
    return found


def _asset(name: str) -> Markup:
    """A style or script of this package, as it stands."""
    return Markup(resources.files("clipper.report").joinpath("assets", name).read_text(encoding="utf-8"))
