"""What the documentation site adds to the pages in docs/: the reference, links from names to it, and notebooks.

MkDocs calls the `on_…` functions (see `hooks` in mkdocs.yml). The reference has every public name: a name without a
docstring ends the build.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tools.commands import command_reference  # noqa: E402
from tools.notebooks import notebook  # noqa: E402

ROOMS = {
    "candidates": "clipper.candidates",
    "rules": "clipper.rules",
    "proximity": "clipper.proximity",
    "pruning": "clipper.pruning",
    "joint": "clipper.pruning.joint",
    "engines": "clipper.engines",
    "training": "clipper.training",
    "labelling": "clipper.labelling",
    "integrations": "clipper.integrations.ltn",
    "benchmarks": "clipper.benchmarks",
    "report": "clipper.report",
    "errors": "clipper.errors",
}
"""The pages of the reference, and the module that each of them shows."""
UNIMPORTED = {"integrations": ("clipper.integrations.abl.ClipperReasoner",)}
"""What a page shows besides, read from its source, because its module needs a framework that is not here."""
LIBRARY_PAGES = {"developers/contributing.md": "CONTRIBUTING.md", "developers/changelog.md": "CHANGELOG.md"}
"""Pages that are files of the repository."""
INSTANCES = {"posterior": "Posterior", "labels": "Labels"}
"""What pages call an object of a class: `posterior.prune` means the method of `Posterior`."""
WORDS = {"count", "label", "none", "register", "run", "total", "train"}
"""Functions whose names are ordinary words: linked where they are called or have their module in front, not alone."""


def names_of(module: ModuleType) -> list[str]:
    """The public names of a module: what `__all__` says, else what it defines without an underscore in front."""
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    return list(getattr(module, "__all__", [name for name in own if not name.startswith("_")]))


@cache
def public() -> dict[str, Any]:
    """Every public object by the path under which the reference shows it; each object once."""
    shown: dict[str, Any] = {}
    for path in ROOMS.values():
        module = import_module(path)
        for name in names_of(module):
            value = getattr(module, name)
            if not any(value is other for other in shown.values()):
                shown[path_of(path, name, value)] = value
    return shown


def path_of(room: str, name: str, value: Any) -> str:
    """The path of a name of a room; that of a function with the name of its module leads into the module."""
    path = f"{room}.{name}"
    return f"{path}.{name}" if sys.modules.get(path, value) is not value else path


def members(value: Any) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class defines itself."""
    if inspect.isclass(value):
        for name, member in vars(value).items():
            inner = getattr(member, "__func__", member)
            if not name.startswith("_") and (isinstance(member, property) or inspect.isfunction(inner)):
                yield name, member


def undocumented() -> list[str]:
    """The public names, methods and properties that have no docstring."""
    missing = []
    for path, value in public().items():
        if (inspect.isclass(value) or inspect.isroutine(value)) and not (value.__doc__ or "").strip():
            missing.append(path)
        for name, member in members(value):
            if not any((getattr(vars(base).get(name), "__doc__", "") or "").strip() for base in value.__mro__):
                missing.append(f"{path}.{name}")
            del member
    return missing


def reference_of(value: Any) -> str | None:
    """The path under which the reference shows an object, if it does."""
    return next((path for path, other in public().items() if other is value), None)


@cache
def identifier(dotted: str) -> str | None:
    """The path in the reference of what a page calls `dotted`, such as "engines.SemanticLoss" or "Candidates.read"."""
    first, *rest = dotted.removeprefix("clipper.").split(".")
    first = INSTANCES.get(first, first) if rest else first
    found = next((path for path in public() if path.rpartition(".")[2] == first), None)
    if found is None:
        room = next((path for path in ROOMS.values() if path.rpartition(".")[2] == first), None)
        if room is None or not rest or rest[0] not in names_of(import_module(room)):
            return None
        found, rest = reference_of(getattr(import_module(room), rest[0])), rest[1:]
    if found is None or not rest:
        return found
    owner = public()[found]
    for base in getattr(owner, "__mro__", ()):
        path = reference_of(base)
        if rest[0] in vars(base) and path:
            return f"{path}.{rest[0]}"
        if rest[0] in vars(base).get("__annotations__", ()) and path:
            return path  # fields are listed with their class
    return None


def linked(markdown: str) -> str:
    """The text with each public name in backquotes made a link to its reference; code and links stay as they are."""
    pieces = re.split(r"(^ *```.*?^ *```|^#.*?$|!?\[[^\]]*\]\([^)]*\)|^.*?<[a-z].*?$)", markdown, flags=re.S | re.M)
    return "".join(piece if i % 2 else _link_names(piece) for i, piece in enumerate(pieces))


def _link_names(text: str) -> str:
    def link(found: re.Match[str]) -> str:
        name, call = found["name"], found["call"]
        path = None if name in WORDS and not call else identifier(name)
        return f"[`{name}{call}`][{path}]" if path else found[0]

    return re.sub(r"(?<!`)`(?P<name>[A-Za-z_][\w.]*)(?P<call>(\([^`]*\))?)`(?!`)", link, text)


def names_on(markdown: str) -> list[str]:
    """The public names that the Python code on a page uses, by their path in the reference, in order."""
    found: dict[str, None] = {}
    for block in re.findall(r"^```python[^\n]*\n(.*?)^```", markdown, flags=re.S | re.M):
        try:
            tree = ast.parse(block)
        except SyntaxError:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("clipper"):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.Attribute):
                names = [ast.unparse(node)] if re.fullmatch(r"[\w.]+", ast.unparse(node)) else []
            else:
                continue
            for name in names:
                if (
                    not isinstance(node, ast.Attribute)
                    or name[0].isupper()
                    or name.split(".")[0] in ("clipper", "rules", "engines")
                ):
                    path = identifier(name)
                    if path:
                        found[path] = None
    return list(found)


def room_page(page: str, path: str) -> str:
    """The Markdown of one page of the reference."""
    module = import_module(path)
    paths = [path_of(path, name, getattr(module, name)) for name in names_of(module)]
    shown = [each for each in paths if each in public()]
    summary = (module.__doc__ or "").strip()
    blocks = "\n\n".join(f"::: {each}" for each in [*shown, *UNIMPORTED.get(page, ())])
    return f"# {path}\n\n{summary}\n\n{blocks}\n"


def reference_index() -> str:
    """The Markdown of the list of all public names."""
    lines = ["# Every public name", "", "What `import clipper` gives you, and what is in its modules.", ""]
    front = import_module("clipper")
    lines += ["## clipper", "", "| name | what it is for |", "|---|---|"]
    lines += [_row(f"clipper.{name}", getattr(front, name)) for name in front.__all__]
    for page, path in ROOMS.items():
        lines += ["", f"## [{path}]({page}.md)", "", "| name | what it is for |", "|---|---|"]
        module = import_module(path)
        lines += [_row(f"{path}.{name}", getattr(module, name)) for name in names_of(module)]
    return "\n".join(lines) + "\n"


def _row(path: str, value: Any) -> str:
    own = inspect.isclass(value) or inspect.isroutine(value)
    text = (
        (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|") if own else "a constant"
    )
    return f"| [`{path.rpartition('.')[2]}`][{reference_of(value) or path}] | {text} |"


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages and notebooks that are made, not written."""
    missing = undocumented()
    if missing:
        raise PluginError(f"public names without a docstring: {', '.join(missing)}")
    made = {f"reference/{page}.md": room_page(page, path) for page, path in ROOMS.items()}
    made |= {"reference/index.md": reference_index(), "reference/commands.md": command_reference()}
    for page, source in LIBRARY_PAGES.items():
        made[page] = (ROOT / source).read_text().replace("](docs/", "](../")
    for file in files.documentation_pages():
        text = Path(file.abs_src_path or "").read_text()
        if file.src_uri.startswith("tutorials/") and "```python" in text:
            made[file.src_uri.replace(".md", ".ipynb")] = notebook(text)
    for path, content in made.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Link names to their reference; offer a tutorial as a notebook; say which names a page uses."""
    del config
    uri = page.file.src_uri
    text = re.sub(r"^```python \w+$", "```python", markdown, flags=re.M)  # the second word says which test runs it
    text = re.sub(r"\[([^\]]*)\]\((\.\./)+(src|tests|results)/[^)]*\)", r"\1", text)  # no page of this site
    if uri.startswith("reference/"):
        return text
    up = "../" * uri.count("/")
    for target, source in LIBRARY_PAGES.items():
        text = text.replace(f"](../{up}{source})", f"]({up}{target})")
    used = names_on(text) if not uri.startswith("developers/") else []
    text = linked(text)
    own_notebook = uri.replace(".md", ".ipynb")
    if files.get_file_from_path(own_notebook):
        title, _, rest = text.partition("\n")
        text = f"{title}\n\n[Download this page as a notebook]({Path(own_notebook).name})\n{rest}"
    if used:
        links = " · ".join(f"[`{path.removeprefix('clipper.')}`][{path}]" for path in used)
        text += f'\n\n<div class="names-on-page" markdown>\nNames on this page: {links}\n</div>\n'
    return text
