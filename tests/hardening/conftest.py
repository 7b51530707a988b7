"""Fixtures of the attacks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hardening.attack import Clippers


@pytest.fixture(scope="session")
def clippers() -> Iterator[Clippers]:
    """A process that runs `clipper` commands."""
    running = Clippers()
    yield running
    running.close()
