"""The inspector in headless Chromium: what it shows is what the pruning did, by click, key and address."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from clipper import Candidates, ProximityGraph, prune
from clipper.training.inspection import Inspection
from tests.oracles import Problem
from tests.report.browser import Browser, browser, needs_browser
from tests.report.pruned import Pruned, page_of, page_of_several, problem_of, pruned_digits

pytest.importorskip("PIL")
pytestmark = [pytest.mark.slow, needs_browser]
CHIPS = """return [...document.querySelectorAll(".candidate")].map((chip) => ({
  labels: chip.dataset.labels.split(",").map(Number), kept: chip.classList.contains("kept"),
  gold: chip.classList.contains("gold"), edges: chip.dataset.edges.split(" ").filter(Boolean),
  line: getComputedStyle(chip.querySelector(".labels")).textDecorationLine,
  weight: Number(getComputedStyle(chip).fontWeight), said: chip.getAttribute("aria-label") }))"""
CARDS = """return [...document.querySelectorAll(".edge")].map((card) => ({
  name: card.dataset.edge, chosen: card.classList.contains("chosen"), lit: card.classList.contains("lit"),
  text: card.textContent }))"""
# Each tile's own pixels, drawn from the sheet where its background stands.
PIXELS = """const tile = document.querySelectorAll(arguments[0])[arguments[1]], done = arguments[2];
  const style = getComputedStyle(tile), sheet = new Image(), canvas = document.createElement("canvas");
  sheet.src = style.backgroundImage.slice(5, -2);
  const [columns, rows] = style.backgroundSize.split(" ").map((size) => Math.round(parseFloat(size) / 100));
  const [x, y] = style.backgroundPosition.split(" ").map((place) => parseFloat(place) / 100);
  sheet.decode().then(() => {
    const [w, h] = [sheet.naturalWidth / columns, sheet.naturalHeight / rows];
    [canvas.width, canvas.height] = [w, h];
    const context = canvas.getContext("2d");
    context.drawImage(sheet, -Math.round(x * (columns - 1)) * w, -Math.round(y * (rows - 1)) * h);
    done([...context.getImageData(0, 0, w, h).data].filter((_, i) => i % 4 === 0));
  });"""


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def pruned() -> Pruned:
    return pruned_digits(k=3, samples=30)


@pytest.fixture(scope="module")
def address(pruned: Pruned, tmp_path_factory: pytest.TempPathFactory) -> str:
    return page_of(tmp_path_factory.mktemp("page"), pruned.inspection(samples=25)).as_uri()


def struck_by(problem: Problem, pruned: Pruned, sample: int, labels: tuple[int, ...]) -> list[str]:
    """By Definition 3.2: the chosen edges that the candidate contradicts, named as on the page."""
    names = []
    for slot in range(3):
        source = sample * 3 + slot
        own = [e for e in range(len(pruned.graph)) if int(pruned.graph.source[e]) == source]
        own.sort(key=lambda e: float(pruned.graph.distance[e]))
        for letter, edge in zip("abc", own, strict=False):
            if pruned.pruning.edges[edge] and not problem.consistent(sample, labels, problem.edges[edge]):
                names.append(f"{slot}{letter}")
    return names


def pixels(window: Browser, selector: str, which: int) -> torch.Tensor:
    return torch.tensor(window.run_later(PIXELS, selector, which)).view(8, 8) / 255


@pytest.mark.parametrize("sample", [0, 3, 7, 19, 24])  # 19 has dropped edges
def test_the_address_picks_a_sample_and_its_candidates_are_struck_out_as_pruned(sample, window, pruned, address):
    window.open(f"{address}#sample={sample}")
    problem = problem_of(pruned)
    begin, end = pruned.task.candidates.offsets[sample : sample + 2].tolist()
    keep = dict(zip(problem.samples[sample], pruned.pruning.keep[begin:end].tolist(), strict=True))
    chips = window.run(CHIPS)
    assert {tuple(chip["labels"]): chip["kept"] for chip in chips} == keep
    for chip in chips:
        labels = tuple(chip["labels"])
        assert chip["line"] == ("none" if chip["kept"] else "line-through")
        assert chip["edges"] == ([] if chip["kept"] else struck_by(problem, pruned, sample, labels))
        assert chip["kept"] or chip["edges"]
        assert chip["gold"] == (labels == tuple(pruned.task.gold[sample].tolist()))
        assert (chip["weight"] >= 700) == chip["gold"]
        assert all(f"{edge}: image" in chip["said"] for edge in chip["edges"])
    assert window.messages() == []


def test_the_images_are_the_samples_own_and_its_neighbours(window, pruned, address):
    window.open(f"{address}#sample=5")
    ink = 1 - pruned.task.inputs[:, :, 0]  # dark on light
    for slot in range(3):
        assert torch.allclose(pixels(window, ".own .tile", slot), ink[5, slot], atol=1 / 255)
    edges = [e for slot in range(3) for e in range(len(pruned.graph)) if int(pruned.graph.source[e]) == 15 + slot]
    cards = window.run(CARDS)
    assert len(cards) == len(edges) == 9
    for place, edge in enumerate(edges):
        other, slot = divmod(int(pruned.graph.target[edge]), 3)
        assert torch.allclose(pixels(window, ".edge .tile", place), ink[other, slot], atol=1 / 255)
        assert f"sample {other}, image {slot}" in cards[place]["text"]
        assert f"target {int(pruned.task.targets[other])}" in cards[place]["text"]
        assert cards[place]["chosen"] == bool(pruned.pruning.edges[edge])


def test_pointing_at_a_struck_candidate_lights_the_edges_that_struck_it(window, address):
    window.open(f"{address}#sample=3")
    struck = next(chip for chip in window.run(CHIPS) if not chip["kept"])
    selector = f'[data-labels="{",".join(map(str, struck["labels"]))}"]'
    window.point(selector)
    assert [card["name"] for card in window.run(CARDS) if card["lit"]] == struck["edges"]
    lit = "return [...document.querySelectorAll('.strip .lit')].map((label) => Number(label.dataset.label))"
    assert window.run(lit) == [struck["labels"][int(edge[0])] for edge in struck["edges"]]
    assert window.run("return document.querySelector('.why').textContent") == struck["said"]
    window.point("h1")
    assert not any(card["lit"] for card in window.run(CARDS))


def arrives(window: Browser, address: str, title: str) -> bool:
    """Whether the page gets there; going back takes a browser a moment."""
    return window.sees(
        "return [location.hash, document.querySelector('h3').textContent.split(':')[0]]", [address, title]
    )


def test_clicks_and_keys_go_from_sample_to_sample(window, address):
    window.open(address)
    assert arrives(window, "", "Sample 0")
    window.click(".next")
    assert arrives(window, "#sample=1", "Sample 1")
    window.press("ARROW_RIGHT")
    assert arrives(window, "#sample=2", "Sample 2")
    window.press("ARROW_LEFT")
    assert arrives(window, "#sample=1", "Sample 1")
    window.click(".previous")
    assert arrives(window, "#sample=0", "Sample 0")
    window.click('nav [data-sample="7"]')
    assert arrives(window, "#sample=7", "Sample 7")
    window.type("input", "11\ue007")
    assert arrives(window, "#sample=11", "Sample 11")
    window.run("history.back()")
    assert arrives(window, "#sample=7", "Sample 7")
    assert window.messages() == []


def test_the_keyboard_alone_reads_why_a_candidate_went(window, address):
    window.open(f"{address}#sample=3")
    window.run("document.querySelectorAll('.candidates')[1].querySelector('.candidate').focus()")
    window.press("ARROW_RIGHT")
    chips = [chip for chip in window.run(CHIPS) if not chip["kept"]]
    assert window.run("return document.querySelector('.why').textContent") == chips[1]["said"]
    assert window.run("return location.hash") == "#sample=3"  # the arrows walk the candidates here


def test_the_list_is_one_stop_for_the_tab_key_and_its_arrows_pick_samples(window, address):
    here = "const link = document.activeElement; return [link.dataset.sample, link.ariaCurrent]"
    window.open(f"{address}#sample=3")
    assert window.run("return document.querySelectorAll('nav a[tabindex=\"0\"]').length") == 1
    window.run("document.querySelector('nav a[tabindex=\"0\"]').focus()")
    assert window.run(here) == ["3", "true"]
    window.press("ARROW_DOWN")
    assert arrives(window, "#sample=4", "Sample 4")
    assert window.run(here) == ["4", "true"]


def test_whoever_follows_an_edge_from_the_keyboard_reads_on_at_the_neighbours_sample(window, address):
    window.open(f"{address}#sample=3")
    window.run("document.querySelector('.candidate').focus()")
    other = window.run("return document.querySelector('.edge a').dataset.sample")
    window.run("document.querySelector('.edge a').focus()")
    window.press("ENTER")
    assert arrives(window, f"#sample={other}", f"Sample {other}")
    assert window.run("return document.activeElement.textContent").startswith(f"Sample {other}")
    window.run("document.querySelector('.candidate').focus(); history.back()")
    assert arrives(window, "#sample=3", "Sample 3")
    assert window.messages() == []


def test_samples_can_be_filtered_and_sorted(window, pruned, address):
    listed = "return [...document.querySelectorAll('nav a')].map((link) => Number(link.dataset.sample))"
    choose = "const s = document.querySelector('select'); s.value = arguments[0]; s.dispatchEvent(new Event('change'))"
    after = pruned.pruning.candidates
    window.open(address)
    window.run(choose, "lost")
    kept = after.contains(pruned.task.gold)[:25]
    assert window.run(listed) == (~kept).nonzero().flatten().tolist()
    window.run(choose, "struck")
    shares = [kept / whole for kept, whole in zip(after.counts, pruned.task.candidates.counts, strict=True)]
    assert window.run(listed) == sorted(range(25), key=lambda i: (shares[i], i))


def test_colours_ragged_samples_names_and_a_second_inspector_work_together(window, tmp_path):
    candidates = Candidates.from_lists([[(0, 1), (1, 0)], [(1,)], [(0, 0)]], classes=2)
    graph = ProximityGraph.from_edges([0, 4], [2, 0])
    pruning = prune(candidates, graph)
    inspection = Inspection.of_pruning(
        torch.rand(3, 2, 3, 9, 7), pruning, graph, targets=["<b>", "y", "z"], names=["<i>cat</i>", "dog"]
    )
    page = page_of_several(tmp_path, {"first": inspection, "second": inspection})
    window.open(page.as_uri() + "#first=1&second=0")
    titles = window.run("return [...document.querySelectorAll('h3')].map((title) => title.textContent)")
    assert titles == ["Sample 1: target y", "Sample 0: target <b>"]
    second = "#inspector-second "
    assert window.run(f"return document.querySelector('{second}.struck').textContent") == "<i>cat</i>dog0a"
    title = f"return [location.hash, document.querySelector('{second}h3').textContent]"
    window.click(second + ".next")
    assert window.sees(title, ["#first=1&second=1", "Sample 1: target y"])
    window.press("ARROW_LEFT")  # the focus is in the second
    assert window.sees(title, ["#first=1&second=0", "Sample 0: target <b>"])
    assert window.messages() == []


def test_the_random_control_is_said_to_strike_by_no_edge(window, tmp_path):
    pruned = pruned_digits(objective="random")
    window.open(page_of(tmp_path, pruned.inspection()).as_uri())
    window.run("document.querySelector('select').value = 'struck'")
    window.run("document.querySelector('select').dispatchEvent(new Event('change'))")
    assert window.sees("return document.querySelectorAll('.candidate.struck').length > 0", True)
    struck = [chip for chip in window.run(CHIPS) if not chip["kept"]]
    assert all(not chip["edges"] and "at random" in chip["said"] for chip in struck)


def test_slots_of_several_kinds_are_called_by_their_kind(window: Browser, tmp_path: Path) -> None:
    lists = [[(0, 2), (1, 2), (1, 3)], [(0, 3)]]
    candidates = Candidates.from_lists(lists, classes={"name": 2, "rel": 2})
    graph = ProximityGraph.from_edges([0, 1], [2, 3])
    names = ["dog", "cat", "on", "near"]
    images, pruning = torch.rand(2, 2, 1, 8, 8), prune(candidates, graph)
    inspection = Inspection.of_pruning(images, pruning, graph, targets=["a", "b"], names=names)
    window.open(page_of(tmp_path, inspection).as_uri())
    heads = window.run("return [...document.querySelectorAll('.slot .own')].map((own) => own.textContent)")
    assert [head.strip() for head in heads] == ["name 0", "rel 1"]
    cards = window.run(CARDS)
    assert "sample 1, name 0" in cards[0]["text"]
    assert "could be dogcat" in cards[0]["text"]
    assert "could be onnear" in cards[1]["text"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 400])
def test_the_page_fits_wide_and_narrow_screens_and_is_readable_in_light_and_dark(width, scheme, window, address):
    window.resize(width, 900)
    window.prefer(scheme)
    window.open(f"{address}#sample=3")
    try:
        assert window.run("return document.documentElement.scrollWidth <= innerWidth")
        ink, paper = (
            sum(map(int, window.run(f"return getComputedStyle(document.body).{name}.match(/\\d+/g).slice(0, 3)")))
            for name in ("color", "backgroundColor")
        )
        assert (ink > paper) == (scheme == "dark")
        assert abs(ink - paper) > 500  # of 765
    finally:
        window.prefer("")
        window.resize(1200, 1400)
