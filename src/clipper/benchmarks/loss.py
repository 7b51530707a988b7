"""Loss and gradient of a batch: candidates one by one against a compiled circuit, interleaved in one run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from clipper.benchmarks.speed import Progress
from clipper.candidates import Candidates
from clipper.engines import SemanticLoss
from clipper.errors import require

CLASSES = 10


class SumCircuit:
    """−log P(the labels sum to the target), by a KLay circuit over partial sums: no candidate is enumerated.

    Examples:
        >>> log_probs = torch.zeros(2, 2, 10).log_softmax(-1)
        >>> SumCircuit(slots=2)(log_probs, torch.tensor([8, 2])).exp()
        tensor([11.1111, 33.3333])
    """

    def __init__(self, slots: int) -> None:
        klay: Any = require("klay", extra="circuits")
        circuit = klay.Circuit()
        partial = [circuit.literal_node(label + 1) for label in range(CLASSES)]
        for slot in range(1, slots):
            facts = [circuit.literal_node(slot * CLASSES + label + 1) for label in range(CLASSES)]
            partial = _one_slot_more(circuit, partial, facts)
        for total in partial:
            circuit.set_root(total)
        self._module: Any = circuit.to_torch_module(semiring="log", compile=False)

    def __call__(self, log_probs: Tensor, targets: Tensor) -> Tensor:
        """The loss of each sample, `(n,)`, from `log_probs (n, m, c)` and the sums `targets (n,)`."""
        facts = log_probs.flatten(1)  # (n, m*c)
        sums: Tensor = self._module(facts, facts)  # (n, sums); no negated fact occurs
        return -sums.gather(1, targets[:, None])[:, 0]


def _one_slot_more(circuit: Any, partial: list[Any], facts: list[Any]) -> list[Any]:
    """The nodes of all sums of one more label."""
    totals = range(len(partial) + len(facts) - 1)
    return [
        circuit.or_node(
            [
                circuit.and_node([partial[total - label], fact])
                for label, fact in enumerate(facts)
                if 0 <= total - label < len(partial)
            ]
        )
        for total in totals
    ]


def race_losses(
    rounds: int, progress: Progress, batch: int = 64, slots: tuple[int, ...] = (3, 4)
) -> list[dict[str, Any]]:
    """Median milliseconds of both on SUM-3 and SUM-4; every round runs both on the same batch, in turns first."""
    rows = []
    for i, m in enumerate(slots):
        circuit = SumCircuit(m)
        times: dict[str, list[float]] = {"candidates": [], "circuit": []}
        for turn in range(rounds + 5):
            for name, seconds in _one_round(circuit, batch, m, turn).items():
                if turn >= 5:  # the first rounds warm up
                    times[name].append(seconds)
            progress("racing", i * (rounds + 5) + turn + 1, len(slots) * (rounds + 5))
        rows.append(_row(m, times))
    return rows


def _one_round(circuit: SumCircuit, batch: int, slots: int, turn: int) -> dict[str, float]:
    generator = torch.Generator().manual_seed(turn)
    targets = torch.randint(0, CLASSES, (batch, slots), generator=generator).sum(1)
    scores = torch.randn(batch, slots, CLASSES, generator=generator)
    candidates = Candidates.from_rule(sum, targets, slots, CLASSES)
    engine = SemanticLoss()
    contestants: list[tuple[str, Callable[[Tensor], Tensor]]] = [
        ("candidates", lambda log_probs: engine(log_probs, candidates)),
        ("circuit", lambda log_probs: circuit(log_probs, targets)),
    ]
    return {name: _timed(loss, scores) for name, loss in contestants[:: 1 if turn % 2 else -1]}


def _timed(loss: Callable[[Tensor], Tensor], scores: Tensor) -> float:
    """Seconds for loss and gradient."""
    log_probs = scores.log_softmax(-1).requires_grad_()
    start = time.perf_counter()
    torch.autograd.grad(loss(log_probs).mean(), log_probs)
    return time.perf_counter() - start


def _row(slots: int, times: dict[str, list[float]]) -> dict[str, Any]:
    pairs = zip(times["circuit"], times["candidates"], strict=True)
    return {
        "task": f"SUM-{slots}",
        "rounds": len(times["circuit"]),
        "milliseconds": {name: 1e3 * statistics.median(values) for name, values in times.items()},
        "circuit_over_candidates": statistics.median(slow / quick for slow, quick in pairs),
    }
