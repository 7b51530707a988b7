"""A run for `test_kill.py` to kill: python -m tests.training.killed_run WEIGHTS [CHECKPOINT]."""

from __future__ import annotations

import sys
import time

import torch

from clipper import Clipper
from clipper.engines import IsedLoss
from clipper.training import Progress, train
from tests.training.problems import TinyNet, problem


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def main(weights: str, checkpoint: str | None = None) -> None:
    torch.set_num_threads(1)
    network = TinyNet()
    say("imported")
    begun = False

    def watch(_: Progress) -> None:
        nonlocal begun
        if not begun:
            say("training")
        begun = True
        if checkpoint:
            time.sleep(0.006)  # the run must outlive ten kills

    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-3)
    train(
        network,
        problem(samples=40),
        IsedLoss(sum, samples=5),
        clip=Clipper(),
        bank=20,
        optimiser=optimiser,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 60),
        clip_gradients=1.0,
        epochs=60,
        batch=8,
        checkpoint=checkpoint,
        checkpoint_steps=1,
        watch=watch,
    )
    torch.save(network.state_dict(), weights)


if __name__ == "__main__":
    main(*sys.argv[1:])
