"""The errors that Clipper raises on purpose. A message says what was expected, what was given and what to do."""

from __future__ import annotations

import importlib
from types import ModuleType


class ClipperError(Exception):
    """Base of all errors that Clipper raises on purpose."""


class InputError(ClipperError, ValueError):
    """The caller's data or arguments do not fit together."""


class BudgetError(ClipperError):
    """A job would exceed its budget of time, memory or steps."""


class FileError(ClipperError, OSError):
    """A file cannot be read or written, is damaged, or would be overwritten."""


class SolverError(ClipperError, RuntimeError):
    """A solver failed, or did not prove an optimum."""


class TrainingError(ClipperError, RuntimeError):
    """A run cannot continue, because its loss is not a finite number."""


class RankError(ClipperError, RuntimeError):
    """Another process of the group has ended, or does not answer."""


class MissingExtraError(ClipperError, ImportError):
    """An optional dependency is not installed."""


def require(module: str, extra: str = "", *, peer: str = "") -> ModuleType:
    """Import an optional dependency.

    Args:
        module: the name of the module.
        extra: the extra of Clipper that installs it.
        peer: the package that installs it, if no extra does.

    Raises:
        MissingExtraError: it is not installed; the message says how to install it.

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
