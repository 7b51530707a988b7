"""The command-line reference as Markdown, made from the commands themselves."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from clipper.cli.app import COMMANDS, _imported

WORDS = {int: "INTEGER", float: "NUMBER", Path: "PATH"}
"""What stands for the value of an option, by its type."""


def command_reference() -> str:
    """The Markdown of all commands with their arguments and options."""
    commands = (line for name in COMMANDS for line in _lines(f"clipper {name}", _imported(name)))
    head = [
        "# Every command and option",
        "",
        "Made from what `clipper COMMAND --help` prints. [Command line](../command-line.md) explains the files that",
        "go in and come out.",
    ]
    return "\n".join([*head, *commands]) + "\n"


def _lines(name: str, command: Any) -> list[str]:
    inner = getattr(command, "commands", {})
    shown = [each for each in command.params if not getattr(each, "hidden", False) and each.name != "help"]
    arguments = [each for each in shown if each.param_type_name == "argument"]
    options = [each for each in shown if each.param_type_name == "option"]
    usage = [name, *("[OPTIONS]" for _ in options[:1]), *(_argument(each) for each in arguments)]
    lines = ["", f"## {name}" if name.count(" ") == 1 else f"### {name}", "", _paragraphs(command.help or "")]
    if not inner or arguments or options:
        lines += ["", "```sh", " ".join(usage), "```"]
    if arguments:
        lines += ["", "| argument | what it is |", "|---|---|"]
        lines += [f"| `{_argument(each)}` | {_cell(each.help)} |" for each in arguments]
    if options:
        lines += ["", "| option | default | what it does |", "|---|---|---|"]
        lines += [f"| {_flags(each)} | {_default(each)} | {_cell(each.help)} |" for each in options]
    for each in inner:
        lines += _lines(f"{name} {each}", inner[each])
    return lines


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _argument(param: Any) -> str:
    text = param.metavar or param.name.upper()
    return text if param.required else f"[{text}]"


def _flags(param: Any) -> str:
    flags = ", ".join(f"`{flag}`" for flag in [*param.opts, *param.secondary_opts])
    if param.is_flag:
        return flags
    kind = param.type_descriptor.annotation
    if get_origin(kind) is Literal:
        return f"{flags} {', '.join(f'`{each}`' for each in get_args(kind))}"
    return f"{flags} {WORDS.get(kind, 'TEXT')}"


def _default(param: Any) -> str:
    if param.required:
        return "required"
    value = param.default() if callable(param.default) else param.default
    return "" if value in (None, False, [], ()) else f"`{value}`"


def _cell(text: str | None) -> str:
    return re.sub(r"\s+", " ", text or "").replace("|", "\\|").replace("<", "&lt;")
