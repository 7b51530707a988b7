"""Loss and gradient of a batch of clips: alignments against the same candidates as one lattice of a state machine, and
against the nearest loss that PyTorch has, connectionist temporal classification. Interleaved in one run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from clipper.benchmarks.mugen.actions import ACTIONS
from clipper.benchmarks.speed import Progress
from clipper.candidates import Alignments, Lattice
from clipper.candidates.rules import alignment
from clipper.engines import SemanticLoss

CLASSES = len(ACTIONS)
_WARM = 2
"""Rounds before the clock starts."""
Text = tuple[int, ...]


def race_alignments(
    rounds: int, progress: Progress, clips: int = 64, frames: int = 128, actions: int = 12
) -> dict[str, Any]:
    """Median milliseconds of each method, and how many times as long as alignments it takes, round by round."""
    texts = _texts(clips, actions)
    engine = SemanticLoss()
    ours = Alignments.from_texts(texts, frames, CLASSES)
    machine = Lattice.from_rule(*alignment(texts), texts, frames, CLASSES)
    methods: dict[str, Callable[[Tensor], Tensor]] = {
        "alignments": partial(engine, candidates=ours),
        "state machine": partial(engine, candidates=machine),
        "CTC": partial(_ctc, texts=texts),
    }
    times: dict[str, list[float]] = {name: [] for name in methods}
    for turn in range(rounds + _WARM):
        scores = torch.randn(clips, frames, CLASSES, generator=torch.Generator().manual_seed(turn))
        for name in list(methods)[:: 1 if turn % 2 else -1]:
            seconds = _timed(methods[name], scores)
            times[name] += [seconds] if turn >= _WARM else []
        progress("racing", turn + 1, rounds + _WARM)
    medians = {name: 1e3 * statistics.median(values) for name, values in times.items()}
    own = times["alignments"]
    ratios = {
        name: statistics.median(a / b for a, b in zip(values, own, strict=True))
        for name, values in times.items()
        if values is not own
    }
    return {"clips": clips, "frames": frames, "actions": actions, "rounds": rounds, "milliseconds": medians,
            "times_slower_than_alignments": ratios}  # fmt: skip


def _texts(clips: int, actions: int) -> list[Text]:
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(CLASSES, (clips, 3 * actions), generator=generator).tolist()
    return [tuple(action for action, _ in groupby(row))[:actions] for row in drawn]


def _ctc(log_probs: Tensor, texts: list[Text]) -> Tensor:
    """CTC wants a blank, frames first and labels from 1: another model, but as much to sum up."""
    padded = torch.nn.functional.pad(log_probs, (1, 0), value=-5.0).transpose(0, 1)
    targets = torch.tensor([action + 1 for text in texts for action in text])
    lengths = torch.tensor([len(text) for text in texts])
    frames = torch.full_like(lengths, log_probs.shape[1])
    return torch.nn.functional.ctc_loss(padded, targets, frames, lengths, reduction="none")


def _timed(loss: Callable[[Tensor], Tensor], scores: Tensor) -> float:
    """Seconds for loss and gradient."""
    log_probs = scores.log_softmax(-1).requires_grad_()
    start = time.perf_counter()
    torch.autograd.grad(loss(log_probs).mean(), log_probs)
    return time.perf_counter() - start
