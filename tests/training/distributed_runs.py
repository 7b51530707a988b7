"""Runs for `test_distributed.py`, by one process or by those of a job: python -m tests.training.distributed_runs …

`compare RESULTS` does every run of `RUNS` and writes weights and metrics. `train RESULTS CHECKPOINT [KILL]` does one
longer run with dropout; the second process kills itself after so many steps.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from clipper import Candidates, Clipper, Lattice
from clipper.candidates.rules import SUM
from clipper.engines import IsedLoss, SemanticLoss
from clipper.training import Classifiers, Packing, Samples, train
from tests.training.problems import TinyNet, problem

Options = dict[str, Any]


def ragged(samples: int = 21) -> Samples:
    """Samples of one to three slots, of which the sum is known."""
    generator = torch.Generator().manual_seed(1)
    lengths = [3, *torch.randint(1, 4, (samples - 1,), generator=generator).tolist()]
    gold = torch.randint(0, 4, (samples, 3), generator=generator)
    used = torch.arange(3) < torch.tensor(lengths)[:, None]
    targets = torch.where(used, gold, 0).sum(1)
    inputs = 3 * torch.randn(4, 6, generator=generator)[gold] + torch.randn(samples, 3, 6, generator=generator)
    return Samples(inputs, Candidates.from_rule(sum, targets, lengths, 4), torch.where(used, gold, -1))


class Embedded(nn.Module):
    """A classifier of one kind that also gives its embedding."""

    def __init__(self, inputs: int, labels: int) -> None:
        super().__init__()
        self.features, self.head = nn.Linear(inputs, 5), nn.Linear(5, labels)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        embedding = self.features(inputs).relu()
        return self.head(embedding).log_softmax(-1), embedding


def scenes(samples: int = 15) -> tuple[nn.Module, Samples]:
    """Two names and a relation each, and a network for each kind of label."""
    generator = torch.Generator().manual_seed(2)
    totals = torch.randint(4, 8, (samples,), generator=generator).tolist()
    rows = [(a, b, r) for a in range(3) for b in range(3) for r in (3, 4)]
    candidates = Candidates.from_lists([[row for row in rows if sum(row) == t] for t in totals], {"name": 3, "rel": 2})
    boxes = {
        "name": torch.randn(samples, 3, 4, generator=generator),
        "rel": torch.randn(samples, 3, 6, generator=generator),
    }
    with torch.random.fork_rng():
        torch.manual_seed(0)
        networks = {"name": Embedded(4, 3), "rel": Embedded(6, 2)}
    return Classifiers(networks, Packing.of(boxes, candidates)), Samples(boxes, candidates)


def network() -> nn.Module:
    """Without dropout, so that random numbers do not matter."""
    net = TinyNet()
    net.head[0] = nn.Identity()
    return net


def lattice() -> Samples:
    data = problem(samples=21)
    assert data.gold is not None
    return Samples(
        data.inputs, Lattice.from_rule(*SUM, targets=data.gold.sum(1).tolist(), slots=2, classes=4), data.gold
    )


def plain(samples: int = 21, **options: Any) -> tuple[nn.Module, Samples, Options]:
    return network(), problem(samples=samples), options


FROZEN = problem(samples=21).inputs
RUNS: dict[str, Callable[[], tuple[nn.Module, Samples, Options]]] = {
    "exact": lambda: plain(clip=Clipper()),
    "exact, k = 3": lambda: plain(clip=Clipper(k=3)),
    "paper": lambda: plain(clip=Clipper(objective="paper")),
    "paper, k = 3": lambda: plain(clip=Clipper(objective="paper", k=3)),
    "random": lambda: plain(clip=Clipper(objective="random")),
    "mutual": lambda: plain(clip=Clipper(mutual=True)),
    "share": lambda: plain(clip=Clipper(share=0.5)),
    "baseline": lambda: plain(),
    "a process without samples": lambda: plain(clip=Clipper(), batch=4),  # the last batch has one sample
    "bank": lambda: plain(clip=Clipper(), bank=12, batch=3),
    "inspector": lambda: plain(clip=Clipper(), inspect=6),
    "inspected baseline": lambda: plain(inspect=6),
    "frozen": lambda: plain(clip=Clipper(k=3), embeddings=FROZEN),
    "frozen, bank": lambda: plain(clip=Clipper(), embeddings=FROZEN, bank=9),
    "once": lambda: plain(clip=Clipper(k=3), embeddings=FROZEN, once=True),
    "joint": lambda: plain(clip=Clipper(k=1, objective="joint"), embeddings=FROZEN, once=True),
    "joint, k = 3": lambda: plain(clip=Clipper(k=3, objective="joint"), embeddings=FROZEN, once=True),
    "clipped gradients": lambda: plain(clip=Clipper(), clip_gradients=0.1),
    "different lengths": lambda: (network(), ragged(), {"clip": Clipper(k=3)}),
    "kinds": lambda: (*scenes(), {"clip": Clipper(k=1)}),
    "lattice": lambda: (network(), lattice(), {"clip": Clipper(k=3)}),
}


def outcome(name: str, steps: int | None = None, group: dist.ProcessGroup | None = None) -> dict[str, Any]:
    """Weights and metrics of a run: three epochs, or one step at a learning rate of 1, which shows the gradient."""
    net, data, options = RUNS[name]()
    options = {"epochs": 3, "batch": 8, **options}
    classifier = net if group is None else DistributedDataParallel(net)
    rate = 1e-2
    if steps is not None:
        options |= {"epochs": 1, "batch": len(data), "clip_gradients": None}
        rate = 1.0
    optimiser = torch.optim.SGD(net.parameters(), lr=rate)
    history = train(classifier, data, SemanticLoss(), optimiser=optimiser, group=group, **options)
    seen = None if history.inspection is None else [(own["id"], own["keep"]) for own in history.inspection.samples]
    return {
        "weights": [weight.detach().clone() for weight in net.parameters()],
        "kept": [share for metrics in history for share in (metrics.retained, metrics.gold or 0)],
        "loss": [metrics.loss for metrics in history],
        "seen": seen,
    }


def long_run(results: str, checkpoint: str, kill: int | None = None) -> None:
    """With dropout and an engine that draws: each process has random numbers of its own, which the checkpoint keeps."""
    net, rank, steps = TinyNet(), dist.get_rank(), 0

    def count(*_: object) -> None:
        nonlocal steps
        steps += 1
        if kill is not None and steps > kill and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    net.register_forward_pre_hook(count)
    history = train(
        DistributedDataParallel(net), problem(samples=21), IsedLoss(sum, samples=5, seed=rank), clip=Clipper(),
        bank=6, epochs=6, batch=8, checkpoint=checkpoint, checkpoint_steps=1, group=dist.group.WORLD,
    )  # fmt: skip
    torch.save({"weights": net.state_dict(), "loss": [metrics.loss for metrics in history]}, f"{results}.{rank}")


def main(what: str, results: str, checkpoint: str = "", kill: str = "") -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    if what == "compare":
        group = dist.group.WORLD
        found = {name: [outcome(name, steps, group) for steps in (1, None)] for name in RUNS}
        torch.save(found, f"{results}.{dist.get_rank()}")
        long_run(f"{results}.long", f"{results}.pt")
    else:
        long_run(results, checkpoint, int(kill) if kill else None)
    gc.collect()  # what still holds the group when Python ends can make gloo abort
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
