"""Times a batch's loss and gradient: sums by lattice, list and compiled circuit; alignments by lattice and CTC."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby, product
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from clipper.arguments import StageProgress
from clipper.benchmarks.mugen.world import ACTIONS
from clipper.benchmarks.timing import WARM_UP, Setting, compare_times, ticks
from clipper.candidates import Alignments, Candidates, Lattice
from clipper.candidates.rules import SUM, Machine, itself
from clipper.engines import SemanticLoss
from clipper.errors import require

CLASSES = 10
BATCH = 64
Semiring = Literal["log", "real"]
"""Circuits compute with logarithms, which is safe, or with probabilities, which is faster but may underflow."""
SLOTS = (3, 4, 15, 30, 40)
"""The lengths of the sums that are timed."""
_LISTED = 4
"""Up to this many slots, lists of candidates are timed, too; longer sums get a tenth of the rounds."""
Text = tuple[int, ...]
"""The actions of a clip, in order."""


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
        facts = [[circuit.literal_node(slot * CLASSES + i + 1) for i in range(CLASSES)] for slot in range(slots)]
        sums = facts[0]  # of the slots so far
        for more in facts[1:]:
            ways: list[list[Any]] = [[] for _ in range(len(sums) + CLASSES - 1)]
            for (total, partial_sum), (label, fact) in product(enumerate(sums), enumerate(more)):
                ways[total + label].append(circuit.and_node([partial_sum, fact]))
            sums = [circuit.or_node(each) for each in ways]
        for whole in sums:
            circuit.set_root(whole)
        self._module: Any = circuit.to_torch_module(semiring=semiring, compile=False)
        self._logarithmic = semiring == "log"

    def __call__(self, log_probs: Tensor, targets: Tensor) -> Tensor:
        """The loss of each sample, `(n,)`, from `log_probs (n, m, c)` and the sums `targets (n,)`."""
        facts = log_probs.flatten(1) if self._logarithmic else log_probs.flatten(1).exp()  # (n, m*c)
        sums: Tensor = self._module(facts, facts)  # (n, sums); no negated fact occurs
        chosen = sums.gather(1, targets[:, None])[:, 0]
        return -chosen if self._logarithmic else -chosen.log()


def race_losses(rounds: int, progress: StageProgress, slots: tuple[int, ...] = SLOTS) -> list[dict[str, Any]]:
    """Median milliseconds on each sum; every round runs all methods on the same batch, in alternating order.

    Args:
        rounds: how often each sum of few digits is timed; longer sums are timed a tenth as often.
        progress: called with what is done.
        slots: the lengths of the sums.
    """
    turns = [rounds if m <= _LISTED else max(1, rounds // 10) for m in slots]
    tick = ticks(progress, "racing", sum(turns) + len(slots) * WARM_UP)
    rows = []
    for m, these in zip(slots, turns, strict=True):
        circuits = {f"circuit, {name}": SumCircuit(m, name) for name in get_args(Semiring)}
        lattice = Lattice.from_rule(*SUM, range((CLASSES - 1) * m + 1), m, CLASSES)
        times = compare_times(partial(_sums, lattice, circuits), these, tick=tick)
        quick = [name for name in times.seconds if name not in circuits]
        rows.append(
            {
                "task": f"SUM-{m}",
                "slots": m,
                "rounds": times.rounds,
                "milliseconds": times.milliseconds,
                **{f"times_slower_than_{q}": {name: times.ratio(name, q) for name in circuits} for q in quick},
            }
        )
    return rows


def _sums(lattice: Lattice, circuits: dict[str, SumCircuit], turn: int) -> Setting:
    generator = torch.Generator().manual_seed(turn)
    targets = torch.randint(0, CLASSES, (BATCH, lattice.slots), generator=generator).sum(1)
    scores = torch.randn(BATCH, lattice.slots, CLASSES, generator=generator)
    engine = SemanticLoss()
    losses: dict[str, Callable[[Tensor], Tensor]] = {
        "lattice": partial(engine, candidates=lattice.batch(targets))  # sample t of this lattice has the target t
    }
    if lattice.slots <= _LISTED:
        losses["candidates"] = partial(engine, candidates=Candidates.from_rule(sum, targets, lattice.slots, CLASSES))
    return _setting(scores, losses | {name: partial(circuit, targets=targets) for name, circuit in circuits.items()})


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
    square = (last["slots"] / first["slots"]) ** 2
    return {"from": first["slots"], "to": last["slots"], "times": times, "square": square}


def race_alignments(
    rounds: int, progress: StageProgress, clips: int = 64, frames: int = 128, actions: int = 12
) -> dict[str, Any]:
    """Time the loss on alignments, on the same candidates as a state machine's lattice, and PyTorch's CTC loss.

    Args:
        rounds: how often.
        progress: called with what is done.
        clips: how many are in the batch.
        frames: of each clip.
        actions: of each text, at most.
    """
    classes = len(ACTIONS)
    texts = _texts(clips, actions)
    engine = SemanticLoss()
    losses = {
        "alignments": partial(engine, candidates=Alignments.from_texts(texts, frames, classes)),
        "state machine": partial(
            engine, candidates=Lattice.from_rule(*alignment_machine(texts), texts, frames, classes)
        ),
        "CTC": partial(_ctc, texts=texts),
    }

    def setting_of(turn: int) -> Setting:
        generator = torch.Generator().manual_seed(turn)
        return _setting(torch.randn(clips, frames, classes, generator=generator), losses)

    times = compare_times(setting_of, rounds, tick=ticks(progress, "racing", WARM_UP + rounds))
    return {
        "clips": clips,
        "frames": frames,
        "actions": actions,
        "rounds": rounds,
        "milliseconds": times.milliseconds,
        "times_slower_than_alignments": {name: times.ratio(name, "alignments") for name in ("state machine", "CTC")},
    }


def alignment_machine(texts: Sequence[Text]) -> Machine:
    """The machine of alignments: a clip's frames show the actions of its text in order, each for at least one frame.

    Labels are the actions, targets are the texts. `Alignments` have the same candidates.

    Examples:
        >>> from clipper.candidates.rules import run
        >>> machine = alignment_machine([(2, 0), (2, 1, 2)])
        >>> run(machine, (2, 2, 0, 0)), run(machine, (0, 2))
        ((2, 0), None)
    """
    prefixes = {text[:length] for text in texts for length in range(len(text) + 1)}

    def step(seen: Text, action: int) -> Text | None:
        after = seen if seen and seen[-1] == action else (*seen, action)
        return after if after in prefixes else None

    return Machine((), step, itself)


def _texts(clips: int, actions: int) -> list[Text]:
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(len(ACTIONS), (clips, 3 * actions), generator=generator).tolist()
    return [tuple(action for action, _ in groupby(row))[:actions] for row in drawn]


def _ctc(log_probs: Tensor, texts: list[Text]) -> Tensor:
    """PyTorch's CTC loss. It has a blank label, so it is another model, but the work is comparable."""
    padded = torch.nn.functional.pad(log_probs, (1, 0), value=-5.0).transpose(0, 1)
    targets = torch.tensor([action + 1 for text in texts for action in text])
    lengths = torch.tensor([len(text) for text in texts])
    frames = torch.full_like(lengths, log_probs.shape[1])
    return torch.nn.functional.ctc_loss(padded, targets, frames, lengths, reduction="none")


def _setting(scores: Tensor, losses: dict[str, Any]) -> Setting:
    """Every loss with its gradient, on the same scores."""

    def with_gradient(loss: Callable[[Tensor], Tensor], log_probs: Tensor) -> object:
        return torch.autograd.grad(loss(log_probs).mean(), log_probs)

    contestants = {name: partial(with_gradient, loss) for name, loss in losses.items()}
    return lambda: scores.log_softmax(-1).requires_grad_(), contestants
