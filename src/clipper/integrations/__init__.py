"""Clipper in other frameworks: a small module for each, imported when it is first used."""

from typing import TYPE_CHECKING

__all__ = ["abl", "ltn"]

if TYPE_CHECKING:
    from clipper.integrations import abl as abl
    from clipper.integrations import ltn as ltn


def __getattr__(name: str) -> object:
    """Import a framework's module; some of them need the framework."""
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module 'clipper.integrations' has no attribute {name!r}", name=name)
    return import_module(f"clipper.integrations.{name}")
