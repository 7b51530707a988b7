"""Samples whose candidates are not listed: what the page says of each slot is what the pruning left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from clipper import ProximityGraph, prune
from clipper.candidates import Alignments
from clipper.errors import InputError
from clipper.pruning import Pruning
from clipper.training.inspection import Inspection
from tests.report.browser import Browser, browser, needs_browser
from tests.report.pruned import data_of, page_of

pytest.importorskip("PIL")
SHOWN = 5
ACTIONS = ["walk", "jump", "climb", "kill", "collect"]
TEXTS = [(0, 1), (1, 0, 2), (2, 3, 0, 1), (0, 4), (4, 3, 2), (1, 2), (3, 0, 1), (0, 2, 4)]
LENGTHS = [8, 9, 12, 8, 10, 11, 9, 12]


class Clips:
    """Clips whose frames look like the action that they show."""

    def __init__(self) -> None:
        chance = torch.Generator().manual_seed(3)
        self.candidates = Alignments.from_texts(TEXTS, LENGTHS, classes=len(ACTIONS))
        self.gold: Tensor = self.candidates.draw(1, seed=3).labels.long()  # (n, m), -1 past a clip's end
        self.frames = torch.rand(8, 12, 3, 8, 8, generator=chance) / 4 + self.gold.view(8, 12, 1, 1, 1) / 8
        self.graph = ProximityGraph.from_embeddings(self.frames.flatten(2), k=2, kind=self.candidates.kind)
        self.pruning: Pruning = prune(self.candidates, self.graph)

    def inspection(self) -> Inspection:
        texts = [", ".join(ACTIONS[action] for action in text) for text in TEXTS]
        return Inspection.of_pruning(
            self.frames, self.pruning, self.graph,
            gold=self.gold, targets=texts, names=ACTIONS, slot="frame", samples=SHOWN,
        )  # fmt: skip


@pytest.fixture(scope="module")
def clips() -> Clips:
    return Clips()


@pytest.fixture(scope="module")
def page(clips: Clips, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page_of(tmp_path_factory.mktemp("page"), clips.inspection())


def test_every_slot_has_the_labels_that_the_pruning_left(clips: Clips, page: Path) -> None:
    before, after = clips.candidates, clips.pruning.candidates
    slots = before.slots
    shown = data_of(page)["samples"]
    assert [clip["id"] for clip in shown] == list(range(SHOWN))
    for clip in shown:
        number, length = clip["id"], LENGTHS[clip["id"]]
        was, left = (part.support.view(-1, slots, len(ACTIONS))[number] for part in (before, after))
        assert clip["left"] == [left[frame].nonzero()[:, 0].tolist() for frame in range(length)]
        assert clip["support"] == [was[frame].nonzero()[:, 0].tolist() for frame in range(length)]
        assert clip["gold"] == clips.gold[number, :length].tolist()
        assert (clip["total"], clip["stay"]) == (before.counts[number], after.counts[number])
        assert clip["verdict"] == ("kept" if bool(after.contains(clips.gold)[number]) else "lost")
        own = clips.graph.source // slots == number
        assert len(clip["edges"]) == int(own.sum())
        assert sum(edge["chosen"] for edge in clip["edges"]) == int(clips.pruning.edges[own].sum())


def test_what_does_not_belong_together_is_refused(clips: Clips) -> None:
    with pytest.raises(InputError, match="names"):
        Inspection.of_pruning(clips.frames, clips.pruning, clips.graph, names=["walk"])
    with pytest.raises(InputError, match="edges"):
        Inspection.of_pruning(clips.frames, clips.pruning, ProximityGraph.from_edges([0], [20]), names=ACTIONS)


@pytest.fixture(scope="module")
def window(page: Path) -> Iterator[Browser]:
    with browser() as opened:
        opened.open(page.as_uri() + "#sample=2")
        yield opened


CELLS = """return [...document.querySelectorAll(".film .frame")].map((frame) =>
  [...frame.querySelectorAll(".cell")].map((cell) => [...cell.classList].filter((name) => name !== "cell")))"""


@pytest.mark.slow
@needs_browser
def test_the_page_shows_what_is_left_of_each_slot(window: Browser, page: Path) -> None:
    clip = data_of(page)["samples"][2]
    cells = window.run(CELLS)
    assert len(cells) == len(clip["tiles"])
    for frame, column in enumerate(cells):
        assert [label for label, kinds in enumerate(column) if "left" in kinds] == clip["left"][frame]
        gone = [label for label, kinds in enumerate(column) if "struck" in kinds or "follows" in kinds]
        assert gone == sorted(set(clip["support"][frame]) - set(clip["left"][frame]))
        assert [label for label, kinds in enumerate(column) if "gold" in kinds] == [clip["gold"][frame]]
    assert clip["target"] in window.run('return document.querySelector(".detail h3").textContent')
    assert window.messages() == []


@pytest.mark.slow
@needs_browser
def test_a_slot_says_why_and_shows_its_neighbours(window: Browser, page: Path) -> None:
    clip = data_of(page)["samples"][2]
    window.click('[data-frame="1"]')
    own = [edge for edge in clip["edges"] if edge["slot"] == 1]
    cards = window.run('return [...document.querySelectorAll(".near .edge")].map((card) => card.textContent)')
    assert len(cards) == len(own)
    said = window.run('return document.querySelector(".why").textContent')
    assert "Frame 1 could be" in said
    assert said.endswith(f"Left: {', '.join(ACTIONS[a] for a in clip['left'][1])}.")
    window.press("ARROW_RIGHT")
    assert "Frame 2 could be" in window.run('return document.querySelector(".why").textContent')
    window.click(".next")
    assert window.sees('return document.querySelector(".detail h3").textContent.startsWith("Sample 3")', True)
