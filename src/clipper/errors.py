"""Everything Clipper raises on purpose; a message says what was expected, what came and what to do."""

from __future__ import annotations

import importlib
from types import ModuleType


class ClipperError(Exception):
    """Base of all errors that Clipper raises on purpose."""


class InputError(ClipperError, ValueError):
    """The caller's data or arguments do not fit together."""


class BudgetError(ClipperError):
    """A job would grow past the budget that the caller set."""


class FileError(ClipperError, OSError):
    """A file cannot be read, is damaged, or would be written over."""


class SolverError(ClipperError, RuntimeError):
    """An integer-programming solver did not prove an optimum."""


class TrainingError(ClipperError, RuntimeError):
    """A run cannot go on: its loss is no finite number any more."""


class RankError(ClipperError, RuntimeError):
    """Another process of the group has ended, or does not answer."""


class MissingExtraError(ClipperError, ImportError):
    """An optional dependency is not installed."""


def require(module: str, extra: str = "", *, peer: str = "") -> ModuleType:
    """Import an optional dependency, or say which extra brings it; a `peer` is a package that no extra brings.

    Examples:
        >>> require("math", extra="solvers").pi
        3.141592653589793
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = peer or f"'clipper-nesy[{extra}]'"
        raise MissingExtraError(
            f"this needs {module}, which could not be imported ({error}); install it with: pip install {package}"
        ) from error
