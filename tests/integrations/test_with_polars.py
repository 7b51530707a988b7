"""Candidates as a polars data frame; `test_peers.py` runs this where polars is."""

from __future__ import annotations

import pytest
import torch

import clipper
from clipper import Candidates, ClipperError
from tests.integrations.digit_sums import run_page
from tests.integrations.environments import peer_module

polars = peer_module("polars")


def test_the_code_on_the_page_brings_candidates_back_as_they_were() -> None:
    kept = Candidates.from_lists([[(0, 8), (1, 7)], [(2,)], [(3, 3)]], classes=10)
    again = run_page("python polars", clipper=clipper, kept=kept)["again"]
    assert torch.equal(again.labels, kept.labels)
    assert torch.equal(again.offsets, kept.offsets)
    assert again.kinds == kept.kinds


def test_what_was_lost_on_the_way_is_asked_for_by_its_name() -> None:
    kinds = {"name": 3, "rel": 2}
    scenes = Candidates.from_lists([[(0, 3), (1, 4)], [(2, 3)]], classes=kinds)
    frame = polars.from_arrow(scenes.to_arrow()).filter(polars.col("slot_0") != 1)
    with pytest.raises(ClipperError, match=r"classes=.*kind"):
        Candidates.from_arrow(frame)
    assert Candidates.from_arrow(frame, classes=kinds).kinds == scenes.kinds
    assert Candidates.from_arrow(frame, classes=kinds).labels.tolist() == [[0, 3], [2, 3]]
    with pytest.raises(ClipperError, match="slot_0"):
        Candidates.from_arrow(frame.drop("slot_0"), classes=kinds)
