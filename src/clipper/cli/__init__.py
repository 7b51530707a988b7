"""The command line: parse, call, print. The only room that prints."""

from clipper.cli.app import main

__all__ = ["main"]
