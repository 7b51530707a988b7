"""Loss and gradient of a batch: candidates one by one against a compiled circuit, interleaved in one run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from clipper.benchmarks.speed import Progress
from clipper.candidates import Candidates
from clipper.engines import SemanticLoss
from clipper.errors import require

CLASSES = 10
Semiring = Literal["log", "real"]
"""What a circuit computes in: logarithms, as safe as semantic loss, or probabilities, faster until they underflow."""


class SumCircuit:
    """−log P(the labels sum to the target), by a KLay circuit over partial sums: no candidate is enumerated.

    Examples:
        >>> log_probs = torch.zeros(2, 2, 10).log_softmax(-1)
        >>> SumCircuit(slots=2)(log_probs, torch.tensor([8, 2])).exp()
        tensor([11.1111, 33.3333])
    """

    def __init__(self, slots: int, semiring: Semiring = "log") -> None:
        klay: Any = require("klay", extra="circuits")
        circuit = klay.Circuit()
        sums = [circuit.literal_node(label + 1) for label in range(CLASSES)]
        for slot in range(1, slots):
            facts = [circuit.literal_node(slot * CLASSES + label + 1) for label in range(CLASSES)]
            sums = _one_slot_more(circuit, sums, facts)
        for total in sums:
            circuit.set_root(total)
        self._module: Any = circuit.to_torch_module(semiring=semiring, compile=False)
        self._logarithmic = semiring == "log"

    def __call__(self, log_probs: Tensor, targets: Tensor) -> Tensor:
        """The loss of each sample, `(n,)`, from `log_probs (n, m, c)` and the sums `targets (n,)`."""
        facts = log_probs.flatten(1) if self._logarithmic else log_probs.flatten(1).exp()  # (n, m*c)
        sums: Tensor = self._module(facts, facts)  # (n, sums); no negated fact occurs
        chosen = sums.gather(1, targets[:, None])[:, 0]
        return -chosen if self._logarithmic else -chosen.log()


def _one_slot_more(circuit: Any, sums: list[Any], facts: list[Any]) -> list[Any]:
    """The nodes of all sums of one more label."""
    totals = range(len(sums) + len(facts) - 1)
    return [
        circuit.or_node(
            [
                circuit.and_node([sums[total - label], fact])
                for label, fact in enumerate(facts)
                if 0 <= total - label < len(sums)
            ]
        )
        for total in totals
    ]


def race_losses(
    rounds: int, progress: Progress, batch: int = 64, slots: tuple[int, ...] = (3, 4)
) -> list[dict[str, Any]]:
    """Median milliseconds on SUM-3 and SUM-4; every round runs all on the same batch, the first of them in turns."""
    rows = []
    for i, m in enumerate(slots):
        circuits = {f"circuit, {name}": SumCircuit(m, name) for name in get_args(Semiring)}
        times: dict[str, list[float]] = {"candidates": [], **{name: [] for name in circuits}}
        for turn in range(rounds + 5):
            for name, seconds in _one_round(circuits, batch, m, turn).items():
                if turn >= 5:  # the first rounds warm up
                    times[name].append(seconds)
            progress("racing", i * (rounds + 5) + turn + 1, len(slots) * (rounds + 5))
        rows.append(_row(m, times))
    return rows


def _one_round(circuits: dict[str, SumCircuit], batch: int, slots: int, turn: int) -> dict[str, float]:
    generator = torch.Generator().manual_seed(turn)
    targets = torch.randint(0, CLASSES, (batch, slots), generator=generator).sum(1)
    scores = torch.randn(batch, slots, CLASSES, generator=generator)
    candidates = Candidates.from_rule(sum, targets, slots, CLASSES)
    engine = SemanticLoss()
    contestants: list[tuple[str, Callable[[Tensor], Tensor]]] = [
        ("candidates", lambda log_probs: engine(log_probs, candidates)),
        *((name, partial(circuit, targets=targets)) for name, circuit in circuits.items()),
    ]
    return {name: _timed(loss, scores) for name, loss in contestants[:: 1 if turn % 2 else -1]}


def _timed(loss: Callable[[Tensor], Tensor], scores: Tensor) -> float:
    """Seconds for loss and gradient."""
    log_probs = scores.log_softmax(-1).requires_grad_()
    start = time.perf_counter()
    torch.autograd.grad(loss(log_probs).mean(), log_probs)
    return time.perf_counter() - start


def _row(slots: int, times: dict[str, list[float]]) -> dict[str, Any]:
    quick = times["candidates"]
    circuits = [name for name in times if name != "candidates"]
    return {
        "task": f"SUM-{slots}",
        "rounds": len(quick),
        "milliseconds": {name: 1e3 * statistics.median(values) for name, values in times.items()},
        "times_slower_than_candidates": {
            name: statistics.median(a / b for a, b in zip(times[name], quick, strict=True)) for name in circuits
        },
    }
