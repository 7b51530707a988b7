"""`clipper clips` as its users meet it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from clipper.benchmarks.mugen.files import read_clips
from clipper.cli import clips as clips_command
from clipper.cli.bench import bench
from clipper.errors import InputError
from tests.launch import printed

pytest.importorskip("PIL")
app = typer.Typer()
app.command()(clips_command.clips)
SMALL = ["--train", "3", "--test", "2", "--frames", "8-10", "--actions", "2"]
run = partial(printed, app)


def test_both_splits_and_their_previews_are_written(tmp_path: Path) -> None:
    written = json.loads(run(tmp_path, *SMALL, "--json"))
    assert set(written) == {"train", "test", "contact sheet", "moving"}
    assert all(Path(path).exists() for path in written.values())
    train, test = read_clips(tmp_path, "train"), read_clips(tmp_path, "test")
    assert (len(train), len(test)) == (3, 2)
    assert all(len(text) == 2 for text in train.texts)
    assert 8 <= int(train.lengths.min()) <= int(train.lengths.max()) <= 10
    assert not torch.equal(train.frames[0, :8], test.frames[0, :8])


def test_the_same_seed_draws_the_same_clips(tmp_path: Path) -> None:
    first, second, other = (tmp_path / name for name in ("first", "second", "other"))
    for folder, seed in ((first, 1), (second, 1), (other, 2)):
        run(folder, *SMALL, "--seed", seed)
    assert torch.equal(read_clips(first).frames, read_clips(second).frames)
    assert read_clips(first).texts != read_clips(other).texts
    assert (first / "preview.gif").read_bytes() == (second / "preview.gif").read_bytes()


@pytest.mark.parametrize(
    ("options", "complaint"), [(["--frames", "many"], "16-64"), (["--noise", "nan"], "--noise to be a finite number")]
)
def test_nonsense_is_refused(tmp_path: Path, options: list[str], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        run(tmp_path, *options)


def test_bench_align_prints_every_method_and_its_ratio() -> None:
    command = ["align", "--rounds", "1", "--clips", "3", "--frames", "12", "--actions", "4"]
    document = json.loads(CliRunner().invoke(bench, [*command, "--json"], catch_exceptions=False).stdout)
    assert set(document["milliseconds"]) == {"alignments", "state machine", "CTC"}
    assert set(document["times_slower_than_alignments"]) == {"state machine", "CTC"}
    assert "12 frames" in CliRunner().invoke(bench, command, catch_exceptions=False).stdout
