"""The inspector of clips: what it says of each frame is what the pruning left, on the page as in the data."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from clipper import Clipper, Lattice, ProximityGraph, Pruning
from clipper.benchmarks.mugen.actions import ACTIONS
from clipper.benchmarks.mugen.clips import draw_clips
from clipper.benchmarks.mugen.task import ClipTask, Middle, task_of
from clipper.errors import InputError
from clipper.proximity import embed
from clipper.report.clips import inspect_clips
from clipper.report.page import write_page
from tests.report.browser import CHROMIUM, DRIVER, Browser, browser

pytest.importorskip("PIL")
Seen = tuple[ClipTask, ProximityGraph, Pruning[Lattice]]
SHOWN = 5


@pytest.fixture(scope="module")
def seen() -> Seen:
    task = task_of(draw_clips(8, seed=3, frames=(8, 12), actions=(2, 4)))
    clip = Clipper(k=2)
    graph = clip.graph(task.candidates, embed(Middle(), task.inputs))
    pruning = clip.along(task.candidates, graph)
    return task, graph, pruning


@pytest.fixture(scope="module")
def text(seen: Seen) -> str:
    task, graph, pruning = seen
    return inspect_clips(task.inputs, task.gold, graph, pruning, names=ACTIONS, clips=SHOWN)


def data_of(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json">(.*?)</script>', text, flags=re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_every_frame_has_the_actions_that_the_pruning_left(seen: Seen, text: str) -> None:
    task, graph, pruning = seen
    lattice, slots = task.candidates, task.candidates.slots
    clips = data_of(text)["samples"]
    assert [clip["id"] for clip in clips] == list(range(SHOWN))
    assert task.gold is not None
    for clip in clips:
        number, length = clip["id"], int(lattice.lengths[clip["id"]])
        kept = pruning.candidates.support.view(-1, slots, len(ACTIONS))[number]
        before = lattice.support.view(-1, slots, len(ACTIONS))[number]
        assert clip["left"] == [kept[frame].nonzero()[:, 0].tolist() for frame in range(length)]
        assert clip["support"] == [before[frame].nonzero()[:, 0].tolist() for frame in range(length)]
        assert clip["gold"] == task.gold[number, :length].tolist()
        assert (clip["total"], clip["stay"]) == (lattice.counts[number], pruning.candidates.counts[number])
        inside = pruning.candidates.span(number, number + 1).contains(task.gold[number][None])
        assert clip["verdict"] == ("kept" if bool(inside) else "lost")
        own = graph.source // slots == number
        assert len(clip["edges"]) == int(own.sum())
        assert sum(edge["chosen"] for edge in clip["edges"]) == int(pruning.edges[own].sum())


def test_what_does_not_belong_together_is_refused(seen: Seen) -> None:
    task, graph, pruning = seen
    with pytest.raises(InputError, match="names"):
        inspect_clips(task.inputs, task.gold, graph, pruning, names=["walk"])
    with pytest.raises(InputError, match="edges"):
        inspect_clips(task.inputs, task.gold, ProximityGraph.from_edges([0], [20]), pruning, names=ACTIONS)


@pytest.fixture(scope="module")
def window(text: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("no Chromium with its driver here: apt-get install chromium chromium-driver")
    folder = tmp_path_factory.mktemp("page")
    write_page(folder / "index.html", "Clips", "What is left.", [("Inspector", text)])
    with browser(folder) as opened:
        opened.open((folder / "index.html").as_uri() + "#clip=2")
        yield opened


CELLS = """return [...document.querySelectorAll(".film .frame")].map((frame) =>
  [...frame.querySelectorAll(".cell")].map((cell) => [...cell.classList].filter((name) => name !== "cell")))"""


@pytest.mark.slow
def test_the_page_shows_what_is_left_over_time(window: Browser, text: str) -> None:
    clip = data_of(text)["samples"][2]
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
def test_a_frame_says_why_and_shows_its_neighbours(window: Browser, text: str) -> None:
    clip = data_of(text)["samples"][2]
    window.click('[data-frame="1"]')
    own = [edge for edge in clip["edges"] if edge["slot"] == 1]
    assert len(
        window.run('return [...document.querySelectorAll(".near .edge")].map((card) => card.textContent)')
    ) == len(own)
    said = window.run('return document.querySelector(".why").textContent')
    assert "Frame 2 could show" in said
    assert said.endswith(f"Left: {', '.join(ACTIONS[a] for a in clip['left'][1])}.")
    window.press("ArrowRight")
    assert "Frame 3 could show" in window.run('return document.querySelector(".why").textContent')
    window.click(".next")
    assert "Clip 3" in window.run('return document.querySelector(".detail h3").textContent')
