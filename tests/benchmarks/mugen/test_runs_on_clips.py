"""Learning from clips: what a run starts from, how it is measured, and that it learns."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.mugen import benchmark
from clipper.benchmarks.mugen.benchmark import Retrieval, build, grouped, retrieved, scores, with_motion
from clipper.benchmarks.mugen.benchmark import clip_samples as task_of
from clipper.benchmarks.mugen.clips import draw_clips
from clipper.benchmarks.mugen.files import write_clips
from clipper.benchmarks.mugen.world import ACTIONS
from clipper.benchmarks.networks import ClipCnn
from clipper.benchmarks.registry import Benchmark
from clipper.benchmarks.runs import learned_samples, run
from clipper.candidates import Candidates
from clipper.errors import FileError, InputError
from clipper.training.adapters import classify
from tests.machines import log_probs_for

CLIPS = RunConfig(rule="align", data="clips", slots=16, samples=24, batch=8, epochs=1)


@pytest.fixture(autouse=True)
def _few_clips(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing and classifying all that are held out would take longer than learning here."""
    monkeypatch.setattr(benchmark, "HELD_OUT", 50)


def test_the_gold_labels_are_one_of_the_alignments() -> None:
    made = build(RunConfig(rule="align", samples=30, slots=16))
    learned, held_out = made.samples, made.evaluate.clips  # type: ignore[union-attr]
    for task in (learned, held_out):
        assert task.gold is not None
        assert bool(task.candidates.contains(task.gold).all())
    assert learned.inputs.shape[0] == 30
    seen = {row.numpy().tobytes() for row in learned.inputs[:, 0]}
    assert not any(row.numpy().tobytes() in seen for row in held_out.inputs[:, 0])


def test_motion_is_the_change_of_brightness() -> None:
    frames = torch.zeros(1, 3, 3, 2, 2, dtype=torch.uint8)
    frames[0, 1] = 255
    inputs = with_motion(frames)
    assert inputs[0, :, 3].flatten(1).tolist() == [[0.5] * 4, [1.0] * 4, [0.0] * 4]
    assert torch.equal(inputs[0, :, :3], frames[0].float() / 255)


def test_a_score_is_the_probability_of_a_text_per_frame_by_trying_every_labelling() -> None:
    clips = draw_clips(4, seed=2, frames=(4, 5), actions=(2, 2))
    candidates = task_of(clips).candidates
    log_probs = log_probs_for(candidates, seed=0)
    groups = torch.tensor([[0, 1], [3, 2]])
    table = scores(log_probs, candidates.lengths, clips.texts, groups)
    for g, i, j in itertools.product(range(2), repeat=3):
        video, text = int(groups[g, i]), clips.texts[int(groups[g, j])]
        length = int(candidates.lengths[video])
        rows = itertools.product(range(len(ACTIONS)), repeat=length)
        fitting = [row for row in rows if tuple(a for a, _ in itertools.groupby(row)) == text]
        every = log_probs[video, range(length), torch.tensor(fitting)].sum(1)
        assert float(table[g, i, j]) == pytest.approx(float(every.logsumexp(0)) / length)


def test_a_text_longer_than_a_video_never_fits() -> None:
    log_probs = torch.zeros(2, 4, 3).log_softmax(-1)
    table = scores(log_probs, torch.tensor([2, 4]), [(0, 1), (0, 1, 2)], torch.tensor([[0, 1]]))
    assert float(table[0, 0, 1]) == -torch.inf
    assert bool(torch.isfinite(table[0, 1]).all())


def test_retrieval_counts_rows_and_columns() -> None:
    table = torch.tensor([[[5.0, 1.0, 2.0], [6.0, 4.0, 3.0], [0.0, 0.0, 9.0]]])
    vtr = sum(row.argmax() == i for i, row in enumerate(table[0])) / 3
    tvr = sum(column.argmax() == i for i, column in enumerate(table[0].T)) / 3
    assert retrieved(table) == (pytest.approx(float(vtr)), pytest.approx(float(tvr)))
    assert retrieved(torch.zeros(1, 3, 3)) == (0.0, 0.0)  # whoever cannot tell has not found


def test_groups_hold_different_texts_and_no_clip_twice() -> None:
    texts = [(i % 7,) for i in range(50)]
    groups = grouped(texts, choices=5)
    assert len(set(groups.flatten().tolist())) == groups.numel()
    assert all(len({texts[i] for i in group}) == 5 for group in groups.tolist())
    with pytest.raises(InputError, match="8 different texts"):
        grouped(texts, choices=8)


class _Knows(torch.nn.Module):
    """Reads the answer off the frame's first pixel."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        label = (inputs[:, 0, 0, 0] * 10).round().long().clamp(0, len(ACTIONS) - 1)
        return torch.nn.functional.one_hot(label, len(ACTIONS)).float().mul(9).log_softmax(-1)


def test_who_knows_every_frame_finds_every_text_and_who_knows_nothing_finds_by_chance() -> None:
    clips = draw_clips(120, seed=4, frames=(10, 12))
    task = task_of(clips)
    assert task.gold is not None
    told = task.inputs.clone()
    told[:, :, 0, 0, 0] = task.gold.clamp(min=0) / 10
    exam = Retrieval(replace(task, inputs=told), clips.texts)
    assert exam(_Knows()) == {"accuracy": 1.0, "vtr3": 1.0, "tvr3": 1.0, "vtr10": 1.0, "tvr10": 1.0}
    told[:, :, 0, 0, 0] = torch.rand(told.shape[:2], generator=torch.Generator().manual_seed(0)) * 0.7
    blind = exam(_Knows())
    assert blind["accuracy"] == pytest.approx(1 / 8, abs=0.04)
    assert blind["vtr3"] == pytest.approx(1 / 3, abs=0.15)
    assert blind["vtr10"] == pytest.approx(1 / 10, abs=0.1)


def test_frames_past_a_clips_end_are_not_classified() -> None:
    inputs = torch.rand(3, 4, 4, 32, 32)
    used = torch.tensor([[True, True, False, False], [True] * 4, [True, False, False, False]])
    network = ClipCnn().eval()
    log_probs, embedding = classify(network, inputs, used)
    everything, vectors = classify(network, inputs)
    assert embedding is not None
    assert vectors is not None
    assert torch.allclose(log_probs[used], everything[used], atol=1e-5)
    assert torch.allclose(embedding[used], vectors[used], atol=1e-5)
    assert not bool(log_probs[~used].any())


@pytest.mark.parametrize(
    ("engine", "objective"),
    [
        *(("semantic", objective) for objective in ("none", "paper", "exact", "random", "gold")),
        ("dolphin", "exact"),
        ("scallop", "exact"),
    ],
)
def test_every_row_of_the_table_runs(engine: str, objective: str) -> None:
    config = replace(CLIPS, engine=engine, objective=objective, evaluate_every=1)  # type: ignore[arg-type]
    record = run(config)
    assert set(record.last.scores) == {"vtr3", "tvr3", "vtr10", "tvr10"}
    assert record.last.accuracy is not None
    assert record.last.gold is not None
    if objective in ("exact", "random"):
        assert record.last.retained < 0.5


def test_a_run_learns_to_tell_frames_apart() -> None:
    record = run(replace(CLIPS, samples=60, epochs=8, lr=3e-3, objective="gold", evaluate_every=8))
    assert record.last.accuracy is not None
    assert record.last.accuracy > 0.5
    assert record.last.scores["vtr10"] > 0.5


def test_the_same_seed_gives_the_same_run() -> None:
    config = replace(CLIPS, objective="exact")
    first, second = run(config), run(config)
    assert first.last.loss == second.last.loss
    assert first.last.scores == second.last.scores


def test_clips_in_files_are_learned_from(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    for split, seed in (("train", 0), ("test", 1)):
        write_clips(draw_clips(24, seed, frames=(12, 16)), tmp_path / "mugen", split)
    record = run(replace(CLIPS, data="mugen", data_root=tmp_path))
    assert record.last.accuracy is not None
    with pytest.raises(InputError, match="expected 25 clips to learn from, got 24"):
        run(replace(CLIPS, data="mugen", samples=25, data_root=tmp_path))


def test_absent_files_and_strange_engines_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CLIPPER_DATA", str(tmp_path))
    with pytest.raises(FileError, match=r"mugen was not found.*clipper clips"):
        run(replace(CLIPS, data="mugen"))
    with pytest.raises(InputError, match="cannot learn from the rule align"):
        run(replace(CLIPS, engine="ised"))
    with pytest.raises(InputError, match="rule align with the data set clips or mugen"):
        run(RunConfig(rule="align", data="mnist"))
    with pytest.raises(InputError, match="rule sum with the data set digits"):
        run(RunConfig(rule="sum", data="clips"))


def test_the_ceiling_needs_gold_labels() -> None:
    task = task_of(draw_clips(2, frames=(4, 4), actions=(1, 2)))
    ceiling = replace(CLIPS, objective="gold")
    known = Benchmark(task, ClipCnn(), lambda _: {})
    assert isinstance(learned_samples(ceiling, known).candidates, Candidates)
    unknown = replace(known, samples=replace(task, gold=None))
    with pytest.raises(InputError, match=r"trains on gold labels, but the data set .* has none"):
        learned_samples(ceiling, unknown)
