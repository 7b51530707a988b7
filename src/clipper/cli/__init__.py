"""The command line: parse, call, print. No other module prints."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command line. Ctrl-C ends it with exit code 130, also while modules are still loading."""
    try:
        from clipper.cli.app import run

        run()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
