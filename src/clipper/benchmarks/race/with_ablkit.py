"""ABLkit's example of MNIST addition, alone and with Clipper's reasoner."""

from __future__ import annotations

import logging
from typing import Any

import torch

from clipper.benchmarks.race.heat import Heat
from clipper.errors import require
from clipper.proximity import Outlines
from clipper.pruning import Clipper


def alone(heat: Heat) -> None:
    """Train with ABLkit's reasoner: of all minimal revisions of predicted labels, it takes the most probable one."""
    reasoning: Any = require("ablkit.reasoning", peer="ablkit")
    _train(heat, reasoning.Reasoner(_sum(heat), dist_func=heat.settings["distance"]), _data(heat))


def with_joint_inference(heat: Heat) -> None:
    """Train with Clipper's reasoner: of all revisions that joint inference keeps, it takes the most probable one."""
    from clipper.integrations.abl import ClipperReasoner

    clip = Clipper(objective="joint", encoder=Outlines())
    reasoner, data = ClipperReasoner(_sum(heat), clip, dist_func=heat.settings["distance"]), _data(heat)
    reasoner.prune(data)  # all data at once, before ABLkit cuts them into segments
    _train(heat, reasoner, data)


def _sum(heat: Heat) -> Any:
    """The knowledge base: the target of a sample is the sum of its labels."""
    reasoning: Any = require("ablkit.reasoning", peer="ablkit")

    class Sum(reasoning.KBBase):  # type: ignore[misc]
        def logic_forward(self, labels: list[int]) -> int:
            return sum(labels)

    return Sum(pseudo_label_list=list(range(heat.classes)))


def _data(heat: Heat) -> tuple[list[list[Any]], None, list[int]]:
    return [list(sample) for sample in heat.inputs], None, heat.targets.tolist()


def _train(heat: Heat, reasoner: Any, data: Any) -> None:
    bridge: Any = require("ablkit.bridge", peer="ablkit")
    learning: Any = require("ablkit.learning", peer="ablkit")
    logging.disable(logging.CRITICAL)
    settings, slots = heat.settings, heat.inputs.shape[1]
    loss = torch.nn.CrossEntropyLoss(label_smoothing=settings["label_smoothing"])
    optimiser = torch.optim.RMSprop(heat.scores.parameters(), lr=settings["lr"], alpha=settings["alpha"])
    model = learning.BasicNN(
        heat.scores, loss, optimiser, scheduler=_OneCycle(heat, optimiser), batch_size=settings["batch"], num_epochs=1
    )
    optimiser.register_step_post_hook(lambda *_: heat.step(min(settings["batch"] / slots, len(heat.inputs))))
    loops = 1 + settings["samples_seen"] // len(heat.inputs)
    segment = min(settings["segment"], len(heat.inputs))
    bridge.SimpleBridge(learning.ABLModel(model), reasoner, metric_list=[]).train(
        data, loops=loops, segment_size=segment, eval_interval=loops + 1
    )


class _OneCycle:
    """The example's schedule of learning rates, spread over the run."""

    _STEPS = 1000

    def __init__(self, heat: Heat, optimiser: torch.optim.Optimizer) -> None:
        self._heat = heat
        self._cycle = torch.optim.lr_scheduler.OneCycleLR(
            optimiser, max_lr=heat.settings["lr"], pct_start=0.15, total_steps=self._STEPS + 1
        )

    def step(self) -> None:
        """Set the learning rate for the current share of the run."""
        while self._cycle.last_epoch < self._STEPS * self._heat.share:
            self._cycle.step()
