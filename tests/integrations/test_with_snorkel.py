"""Soft labels as Snorkel's end models take them; `test_peers.py` runs this where Snorkel is."""

from __future__ import annotations

import numpy as np
import pytest

from tests.integrations.digit_sums import Digits, compare, digit_network, digit_sums, run_page
from tests.integrations.environments import peer_module

peer_module("snorkel")


def trained(seed: int, digits: Digits, soft: np.ndarray) -> float:
    network = digit_network(seed)
    run_page("python snorkel", network=network, images=digits.images, soft=soft)
    return digits.accuracy(network)


@pytest.mark.slow
def test_the_code_on_the_page_learns_more_than_from_what_each_formula_says_alone() -> None:
    def alone(seed: int) -> float:
        digits = digit_sums(seed)
        return trained(seed, digits, digits.candidates.marginals(digits.candidates.zeros()).flatten(0, 1).numpy())

    def with_clipper(seed: int) -> float:
        digits = digit_sums(seed)
        soft = digits.posterior.marginals[digits.posterior.labels >= 0].numpy()
        assert soft.shape == (200, 10)
        np.testing.assert_allclose(soft.sum(1), 1, atol=1e-5)
        return trained(seed, digits, soft)

    assert compare("Snorkel's loss on soft labels, SUM-2, n = 100", alone, with_clipper) > 10
