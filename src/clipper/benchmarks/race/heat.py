"""Heat: one contestant's run, with a clock that stops while accuracy is measured."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clipper.benchmarks import networks
from clipper.benchmarks.race.tasks import CLASSES

MEASURED_AT = (
    0.25,
    0.5,
    1,
    2,
    3,
    5,
    7,
    10,
    15,
    20,
    30,
    45,
    60,
    90,
    120,
    180,
    240,
    300,
    450,
    600,
    900,
    1200,
    1800,
    3600,
)
"""Seconds at which accuracies are compared."""
_SHORTLY_BEFORE = 0.9
"""The network is measured after the first step beyond this share of each time, so that it is still within the time."""
_EVALUATION_BATCH = 500
"""Held-out images per forward pass."""


class Finished(Exception):  # noqa: N818
    """Raised when a contestant has seen all its samples, or its time is over. Contestants must not catch it."""


class Scores(nn.Module):
    """The network as other frameworks expect it, from `(instances, …)` to log-probabilities `(instances, c)`."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor) -> Tensor:
        """The scores alone, without the embedding."""
        scores: Tensor = self.network(inputs)[0]
        return scores


class Heat:
    """One contestant's run: data, network, settings and clock.

    A contestant is a function that takes a heat. It trains `heat.scores` in place, in an endless loop, and calls
    `heat.step` after every step of its optimiser. `heat.step` measures the network from time to time, and ends the run
    by raising `Finished`.

    Attributes:
        inputs: `(n, m, channels, height, width)`.
        targets: the sum of each sample, `(n,)`.
        classes: how many labels there are.
        scores: the network, a module from `(instances, …)` to log-probabilities `(instances, c)`.
        settings: the contestant's own; "samples_seen" or "epochs" says how long it trains.
        seed: seed of all random draws.
        notes: further figures that the contestant reports; they are written into its row.
        curve: at each measurement the seconds, the processor's seconds, the accuracy and the samples seen so far.
        first_step: seconds until the end of the first step; None before.
        out_of_time: whether the clock ended the run.
    """

    def __init__(
        self,
        arrays: Mapping[str, np.ndarray],
        network: str,
        settings: Mapping[str, Any],
        seed: int,
        seconds: float,
        tell: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> None:
        """Prepare a heat; the clock starts with `run`.

        Args:
            arrays: what `write_task` wrote.
            network: a class of `clipper.benchmarks.networks`.
            settings: the contestant's settings.
            seed: of all random draws.
            seconds: the time limit of the run.
            tell: called with each measurement.
        """
        self.inputs = torch.from_numpy(arrays["inputs"])
        self.targets = torch.from_numpy(arrays["targets"])
        self.classes = CLASSES
        self.settings, self.seed, self.seconds = dict(settings), seed, seconds
        self.notes: dict[str, Any] = {}
        self.curve: list[tuple[float, float, float, float]] = []
        self.first_step: float | None = None
        self.out_of_time = False
        self._held_out = torch.from_numpy(arrays["held_out"])
        self._held_out_labels = torch.from_numpy(arrays["held_out_labels"])
        # With channels last, a CPU is twice as fast, for all contestants alike.
        self._network = getattr(networks, network)(CLASSES).to(memory_format=torch.channels_last)
        weights = {name.partition("/")[2]: torch.from_numpy(arrays[name]) for name in arrays if "weights/" in name}
        self._network.load_state_dict(weights)
        self.scores = Scores(self._network)
        self._tell = tell
        self._spent, self._processor_spent = 0.0, 0.0  # before the clock was last started
        self._started, self._processor_started = 0.0, 0.0
        self._seen = 0.0
        self._wanted = float(settings.get("samples_seen") or settings["epochs"] * len(self.inputs))

    @property
    def share(self) -> float:
        """How much of the run is over, 0 to 1, by samples seen or by seconds, whichever is more."""
        return min(1.0, max(self._seen / self._wanted, self._elapsed() / self.seconds))

    def run(self, contestant: Callable[[Heat], None]) -> None:
        """Run a contestant until it has finished; all random generators are seeded. The clock starts here."""
        self._warm_up()
        torch.manual_seed(self.seed)
        np.random.seed(self.seed % 2**32)
        self._measure()
        self._started, self._processor_started = time.perf_counter(), time.process_time()
        try:
            contestant(self)
        except Finished:
            pass
        else:
            self._stop()
        self._measure()

    def batches(self, size: int) -> Iterator[Tensor]:
        """Endless batches of sample numbers, in random order; every pass uses each sample once."""
        while True:
            yield from torch.split(torch.randperm(len(self.inputs)), size)

    def step(self, samples: float) -> None:
        """Report a step of the optimiser, and how many samples it used.

        Raises:
            Finished: the run is over.
        """
        self._seen += samples
        elapsed = self._elapsed()
        if self.first_step is None:
            self.first_step = elapsed
        self.out_of_time = elapsed >= self.seconds
        if self.out_of_time or self._seen >= self._wanted:
            self._stop()
            raise Finished
        if elapsed >= self._next_due():
            self._stop()
            self._measure()
            self._started, self._processor_started = time.perf_counter(), time.process_time()

    def _warm_up(self) -> None:
        """Take a step with a copy of the network, because PyTorch's first step is slow."""
        scores = deepcopy(self.scores)
        optimiser = torch.optim.AdamW(scores.parameters())
        scores(self.inputs[0]).mean().backward()
        optimiser.step()

    def _elapsed(self) -> float:
        return self._spent + (time.perf_counter() - self._started if self._started else 0.0)

    def _stop(self) -> None:
        self._spent = self._elapsed()
        self._processor_spent += time.process_time() - self._processor_started
        self._started = 0.0

    def _next_due(self) -> float:
        last = self.curve[-1][0]
        return next((at for mark in MEASURED_AT if (at := _SHORTLY_BEFORE * mark) > last), float("inf"))

    def _measure(self) -> None:
        """Measure the accuracy on the held-out images; the clock is stopped meanwhile."""
        training = self._network.training
        self._network.eval()
        with torch.no_grad():
            guessed = [self.scores(images).argmax(-1) for images in torch.split(self._held_out, _EVALUATION_BATCH)]
        self._network.train(training)
        accuracy = float((torch.cat(guessed) == self._held_out_labels).double().mean())
        point = (round(self._spent, 4), round(self._processor_spent, 4), accuracy, round(self._seen, 1))
        self.curve.append(point)
        self._tell({"seconds": point[0], "processor_seconds": point[1], "accuracy": accuracy, "samples": point[3]})


def as_line(document: Mapping[str, Any]) -> str:
    """A document as one line of JSON."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False)
