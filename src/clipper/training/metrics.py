"""What is measured while training: loss, accuracy, what pruning keeps and what it costs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from clipper.candidates import Candidates
from clipper.errors import InputError

HeldOut = tuple[Tensor, Tensor]
"""Inputs `(instances, *shape)` and labels `(instances,)` that no run learns from."""


@dataclass(frozen=True)
class Figures:
    """One epoch in numbers; shares lie in 0 … 1."""

    epoch: int
    """Counted from 1."""
    loss: float
    """Mean over the samples."""
    accuracy: float | None
    """On the held-out set, where there is one."""
    retained: float
    """Share of the candidates that pruning kept."""
    gold: float | None
    """Share of the samples whose gold labels are still a candidate, where gold is known."""
    seconds: float
    """Time of the steps; evaluation and checkpoints are not in it."""
    pruning_seconds: float
    """Of which: neighbour search and pruning."""

    @property
    def pruning_share(self) -> float:
        """Pruning time as a share of the epoch's time."""
        return self.pruning_seconds / self.seconds if self.seconds else 0.0

    def as_dict(self) -> dict[str, Any]:
        """For records: the fields and the share of pruning."""
        return asdict(self) | {"pruning_share": self.pruning_share}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Figures:
        """The reverse of `as_dict`."""
        return cls(**{field.name: values[field.name] for field in fields(cls)})


@dataclass
class Tally:
    """The sums behind the figures of the epoch under way."""

    samples: int = 0
    loss: float = 0.0
    candidates: int = 0
    kept: int = 0
    gold: int | None = None
    seconds: float = 0.0
    pruning_seconds: float = 0.0

    def count(self, losses: Tensor, before: Candidates, kept: Candidates, gold: Tensor | None) -> None:
        """Add a batch: its `losses (n,)`, its candidates before and after pruning, its `gold (n, m)`."""
        self.samples += len(losses)
        self.loss += float(losses.detach().sum())
        self.candidates += len(before)
        self.kept += len(kept)
        if gold is not None:
            self.gold = (self.gold or 0) + int(kept.contains(gold).sum())

    def figures(self, epoch: int, accuracy: float | None = None) -> Figures:
        """The figures so far."""
        samples = max(1, self.samples)
        return Figures(
            epoch=epoch,
            loss=self.loss / samples,
            accuracy=accuracy,
            retained=self.kept / self.candidates if self.candidates else 1.0,
            gold=None if self.gold is None else self.gold / samples,
            seconds=self.seconds,
            pruning_seconds=self.pruning_seconds,
        )


@torch.no_grad()
def accuracy(classifier: nn.Module, inputs: Tensor, labels: Tensor, chunk: int = 250) -> float:
    """The share of held-out instances whose most probable label is the right one.

    Args:
        classifier: gives `log_probs (instances, c)`, alone or before an embedding; its mode is left as it was.
        inputs: `(instances, *shape)`.
        labels: `(instances,)`.
        chunk: instances classified together.

    Examples:
        >>> accuracy(nn.Identity(), torch.eye(4), torch.tensor([0, 1, 2, 0]))
        0.75
    """
    if not len(labels) or len(inputs) != len(labels):
        raise InputError(f"expected as many held-out inputs as labels, got {len(inputs)} and {len(labels)}")
    training = classifier.training
    classifier.eval()
    try:
        parts = zip(torch.split(inputs, chunk), torch.split(labels, chunk), strict=True)
        right = sum(int((_scores(classifier(part)).argmax(-1) == gold).sum()) for part, gold in parts)
    finally:
        classifier.train(training)
    return right / len(labels)


def _scores(output: Tensor | tuple[Tensor, Tensor]) -> Tensor:
    return output if isinstance(output, Tensor) else output[0]
