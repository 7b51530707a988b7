"""Candidates as a Hugging Face data set; `test_peers.py` runs this where datasets is."""

from __future__ import annotations

import pytest
import torch

import clipper
from clipper import Candidates, ClipperError
from tests.integrations.digit_sums import run_page
from tests.integrations.environments import peer_module

datasets = peer_module("datasets")


def test_the_code_on_the_page_brings_candidates_back_as_they_were() -> None:
    kept = Candidates.from_lists([[(0, 8), (1, 7)], [(2,)], [(3, 3)]], classes=10)
    again = run_page("python datasets", clipper=clipper, kept=kept)["again"]
    assert torch.equal(again.labels, kept.labels)
    assert torch.equal(again.offsets, kept.offsets)
    assert again.kinds == kept.kinds


def test_what_was_lost_on_the_way_is_asked_for_by_its_name() -> None:
    scenes = Candidates.from_lists([[(0, 3), (1, 4)], [(2, 3)]], classes={"name": 3, "rel": 2})
    dataset = datasets.Dataset(scenes.to_arrow()).filter(lambda row: row["slot_0"] != 1)
    with pytest.raises(ClipperError, match=r"classes=.*kind"):
        Candidates.from_arrow(dataset.with_format("arrow")[:])
    with pytest.raises(ClipperError, match="with_format"):
        Candidates.from_arrow(dataset)
    again = Candidates.from_arrow(dataset.with_format("arrow")[:], classes={"name": 3, "rel": 2})
    assert again.labels.tolist() == [[0, 3], [2, 3]]
