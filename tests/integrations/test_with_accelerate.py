"""Accelerate; `test_peers.py` runs this where it is."""

from __future__ import annotations

import pytest

from clipper import Candidates
from tests.integrations.digit_sums import Digits, batches, compare, digit_network, digit_sums, run_page
from tests.integrations.environments import peer_module

peer_module("accelerate")


def trained(seed: int, digits: Digits, kept: Candidates) -> float:
    network = digit_network(seed)
    run_page("python accelerate", network=network, kept=kept, loader=batches(digits))
    return digits.accuracy(network)


@pytest.mark.slow
def test_the_code_on_the_page_learns_from_survivors_what_it_does_not_from_all_candidates() -> None:
    def alone(seed: int) -> float:
        digits = digit_sums(seed)
        return trained(seed, digits, digits.candidates)

    def with_clipper(seed: int) -> float:
        digits = digit_sums(seed)
        return trained(seed, digits, digits.kept)

    assert compare("Accelerate, semantic loss, SUM-2, n = 100", alone, with_clipper) > 10
