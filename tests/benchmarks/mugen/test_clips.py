"""Drawn clips: scripts that can be played, pictures that differ by action, the same from the same seed."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clipper.benchmarks.data.sources import data_folders
from clipper.benchmarks.mugen.clips import contact_sheet, draw_clips, moving_preview
from clipper.benchmarks.mugen.world import (
    ACTIONS,
    HIGHEST,
    SHORTEST,
    actions_of,
    art_from,
    own_art,
    sentence,
    write_script,
)
from clipper.errors import FileError, InputError


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**6), low=st.integers(2, 40), more=st.integers(0, 30), most=st.integers(1, 12))
def test_a_script_shows_its_text_in_order(seed: int, low: int, more: int, most: int) -> None:
    script = write_script(np.random.default_rng(seed), (low, low + more), (1, most))
    assert low <= len(script.action) <= low + more
    runs = [(action, len(list(own))) for action, own in groupby(script.action.tolist())]
    assert tuple(action for action, _ in runs) == script.text
    assert all(length >= SHORTEST for _, length in runs)
    assert 1 <= len(script.text) <= most
    assert script.height.min() >= 0
    assert script.height.max() <= HIGHEST
    assert (np.diff(script.distance) >= 0).all()


def test_who_jumps_rises_and_who_falls_sinks() -> None:
    jump, fall, walk = (ACTIONS.index(name) for name in ("jump", "fall", "walk"))
    for seed in range(50):
        script = write_script(np.random.default_rng(seed), (30, 60), (4, 6))
        steps = np.diff(script.height)
        inside = script.action[1:] == script.action[:-1]
        assert (steps[inside & (script.action[1:] == jump)] >= 0).all()
        assert (steps[inside & (script.action[1:] == fall)] <= 0).all()
        assert (steps[inside & (script.action[1:] == walk)] == 0).all()


@settings(max_examples=50, deadline=None)
@given(actions=st.lists(st.integers(0, len(ACTIONS) - 1), min_size=1, max_size=9))
def test_what_is_said_of_actions_is_understood(actions: list[int]) -> None:
    text = tuple(action for action, _ in groupby(actions))
    assert actions_of(sentence(text)) == actions_of(sentence(text, side="left")) == text


def test_the_example_of_mugens_own_page_is_understood() -> None:
    said = (
        "Mugen walks to the left, and jumps up to the right to a crate, and jumps down to the right to a platform and "
        "collects a coin, and walks to the right, and killed by a gear"
    )
    assert [ACTIONS[action] for action in actions_of(said)] == ["walk", "jump", "fall", "coin", "walk", "hit"]


def test_a_text_without_actions_is_refused() -> None:
    with pytest.raises(InputError, match="tells of actions"):
        actions_of("The weather is fine")


def test_clips_depend_on_seed_and_number_alone() -> None:
    few, many = draw_clips(2, seed=5, frames=(16, 16)), draw_clips(4, seed=5, frames=(16, 16))
    assert torch.equal(few.frames, many.frames[:2])
    assert few.texts == many.texts[:2]
    assert not torch.equal(few.frames, draw_clips(2, seed=6, frames=(16, 16)).frames)


def test_noise_and_distractors_can_be_turned_off() -> None:
    options = {"frames": (16, 16), "actions": (2, 2)}
    clean = draw_clips(3, seed=1, noise=0, distractors=0, **options)
    again = draw_clips(3, seed=1, noise=0, distractors=0, **options)
    busy = draw_clips(3, seed=1, noise=0, distractors=20, **options)
    noisy = draw_clips(3, seed=1, noise=0.1, distractors=0, **options)
    assert torch.equal(clean.frames, again.frames)
    assert clean.texts == busy.texts == noisy.texts
    assert 0.1 < _differing(clean.frames, busy.frames) < 0.9
    assert _differing(clean.frames, noisy.frames) > 0.9
    assert float((noisy.frames.float() - clean.frames.float()).std()) == pytest.approx(25, rel=0.2)


def _differing(first: torch.Tensor, second: torch.Tensor) -> float:
    return float((first != second).double().mean())


def test_each_action_has_a_look_of_its_own() -> None:
    clips = draw_clips(60, seed=0, noise=0, distractors=0, frames=(24, 32))
    assert clips.gold is not None
    seen = set(clips.gold.flatten().tolist()) - {-1}
    assert seen == set(range(len(ACTIONS)))
    middle = clips.frames[..., 8:24].float()
    means = torch.stack([middle[clips.gold == action].mean(0).flatten() for action in range(len(ACTIONS))])
    distances = torch.cdist(means, means) + 1e9 * torch.eye(len(ACTIONS))
    assert float(distances.min()) > 100


def test_clips_may_be_larger() -> None:
    small, large = (draw_clips(1, frames=(4, 4), actions=(1, 1), noise=0, art=own_art(scale)) for scale in (1, 2))
    assert large.frames.shape[-1] == 2 * small.frames.shape[-1]
    assert large.texts == small.texts


def test_mugens_sprites_are_drawn_with_where_they_are() -> None:
    folder = next((place for place in data_folders("mugen") if (place / "kenneyLarge").is_dir()), None)
    if folder is None:
        pytest.skip("no sprites of MUGEN in the folder mugen of CLIPPER_DATA")
    art = art_from(folder, scale=2)
    own = own_art(scale=2)
    assert {name: picture.shape for name, picture in art.pictures.items()} == {
        name: picture.shape for name, picture in own.pictures.items()
    }
    assert not np.array_equal(art.pictures["walk1"], own.pictures["walk1"])
    ours, theirs = (draw_clips(2, frames=(8, 8), art=each) for each in (own, art))
    assert ours.texts == theirs.texts
    assert not torch.equal(ours.frames, theirs.frames)


def test_a_folder_without_sprites_is_named(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    with pytest.raises(FileError, match=r"alienYellow_walk1.png.*assets"):
        art_from(tmp_path)


def test_impossible_ranges_are_refused() -> None:
    with pytest.raises(InputError, match="frames"):
        draw_clips(1, frames=(20, 10))
    with pytest.raises(InputError, match="actions"):
        draw_clips(1, actions=(0, 3))


def test_previews_show_the_frames(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    clips = draw_clips(3, frames=(16, 20))
    contact_sheet(clips, tmp_path / "sheet.png", rows=2, columns=5)
    sheet = np.asarray(image.open(tmp_path / "sheet.png"))
    assert sheet.shape == (2 * 34 * 2, 5 * 34 * 2, 3)
    assert np.array_equal(sheet[:64:2, :64:2], clips.frames[0, 0].permute(1, 2, 0).numpy())
    moving_preview(clips, tmp_path / "moving.gif", columns=2)
    with image.open(tmp_path / "moving.gif") as moving:
        assert moving.n_frames == int(clips.lengths[:2].max())
        assert moving.size == (2 * 34 * 2, 32 * 2)
