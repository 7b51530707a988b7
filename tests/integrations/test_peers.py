"""Every peer in an environment of its own: `make check`, or CLIPPER_PEERS=1."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.integrations.environments import PEERS, run_peer


@pytest.mark.slow
@pytest.mark.peers
@pytest.mark.skipif(os.environ.get("CLIPPER_PEERS") != "1", reason="peers are installed and run by `make check` only")
@pytest.mark.parametrize("peer", PEERS)
def test_it_works_with(peer: str, tmp_path: Path) -> None:
    run_peer(peer, tmp_path)
