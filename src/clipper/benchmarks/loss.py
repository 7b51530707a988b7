"""Loss and gradient of a batch: a lattice and listed candidates against a compiled circuit, interleaved in one run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from clipper.benchmarks.speed import Progress
from clipper.candidates import Candidates, Lattice
from clipper.candidates.rules import SUM
from clipper.engines import SemanticLoss
from clipper.errors import require

CLASSES = 10
Semiring = Literal["log", "real"]
"""What a circuit computes in: logarithms, as safe as semantic loss, or probabilities, faster until they underflow."""


SLOTS = (3, 4, 15, 30, 40)
"""The sums that are raced."""
_LISTED = 4
"""Slots up to which candidates are listed, too; a longer race has a tenth of the rounds."""
_WARM = 5
"""Rounds before the clock starts."""


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
    rounds: int, progress: Progress, batch: int = 64, slots: tuple[int, ...] = SLOTS
) -> list[dict[str, Any]]:
    """Median milliseconds on each sum; every round runs all methods on the same batch, the first of them in turns."""
    turns = {m: (rounds if m <= _LISTED else max(1, rounds // 10)) + _WARM for m in slots}
    done, rows = 0, []
    for m in slots:
        circuits = {f"circuit, {name}": SumCircuit(m, name) for name in get_args(Semiring)}
        lattice = Lattice.from_rule(*SUM, range((CLASSES - 1) * m + 1), m, CLASSES)
        times: dict[str, list[float]] = {}
        for turn in range(turns[m]):
            for name, seconds in _one_round(circuits, lattice, batch, turn).items():
                if turn >= _WARM:
                    times.setdefault(name, []).append(seconds)
            done += 1
            progress("racing", done, sum(turns.values()))
        rows.append(_row(m, {name: times[name] for name in sorted(times, key=_place)}))
    return rows


def growth(rows: list[dict[str, Any]]) -> dict[str, float] | None:
    """How the lattice's time grows from the first to the last task, beside the square of the slots; None for one task.

    Examples:
        >>> growth([{"slots": 4, "milliseconds": {"lattice": 0.5}}, {"slots": 40, "milliseconds": {"lattice": 15.0}}])
        {'from': 4, 'to': 40, 'times': 30.0, 'square': 100.0}
    """
    first = next((row for row in rows if row["slots"] >= _LISTED), None)
    if first is None or first is rows[-1]:
        return None
    last = rows[-1]
    times = last["milliseconds"]["lattice"] / first["milliseconds"]["lattice"]
    return {
        "from": first["slots"],
        "to": last["slots"],
        "times": times,
        "square": (last["slots"] / first["slots"]) ** 2,
    }


def _one_round(circuits: dict[str, SumCircuit], lattice: Lattice, batch: int, turn: int) -> dict[str, float]:
    generator = torch.Generator().manual_seed(turn)
    targets = torch.randint(0, CLASSES, (batch, lattice.slots), generator=generator).sum(1)
    scores = torch.randn(batch, lattice.slots, CLASSES, generator=generator)
    own = lattice.batch(targets)  # a sum is its own place among all sums
    engine = SemanticLoss()
    contestants: list[tuple[str, Callable[[Tensor], Tensor]]] = [
        ("lattice", lambda log_probs: engine(log_probs, own)),
        *((name, partial(circuit, targets=targets)) for name, circuit in circuits.items()),
    ]
    if lattice.slots <= _LISTED:
        candidates = Candidates.from_rule(sum, targets, lattice.slots, CLASSES)
        contestants.append(("candidates", lambda log_probs: engine(log_probs, candidates)))
    return {name: _timed(loss, scores) for name, loss in contestants[:: 1 if turn % 2 else -1]}


def _timed(loss: Callable[[Tensor], Tensor], scores: Tensor) -> float:
    """Seconds for loss and gradient."""
    log_probs = scores.log_softmax(-1).requires_grad_()
    start = time.perf_counter()
    torch.autograd.grad(loss(log_probs).mean(), log_probs)
    return time.perf_counter() - start


def _place(name: str) -> int:
    return ["lattice", "candidates", *(f"circuit, {semiring}" for semiring in get_args(Semiring))].index(name)


def _row(slots: int, times: dict[str, list[float]]) -> dict[str, Any]:
    circuits = [name for name in times if name.startswith("circuit")]
    ratios = {
        f"times_slower_than_{quick}": {
            name: statistics.median(a / b for a, b in zip(times[name], times[quick], strict=True)) for name in circuits
        }
        for quick in ("lattice", "candidates")
        if quick in times
    }
    return {
        "task": f"SUM-{slots}",
        "slots": slots,
        "rounds": len(times["lattice"]),
        "milliseconds": {name: 1e3 * statistics.median(values) for name, values in times.items()},
        **ratios,
    }
