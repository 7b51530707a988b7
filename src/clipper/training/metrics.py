"""Metrics of training: loss, accuracy, the share of candidates that pruning keeps, and the time that it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import torch
from torch import Tensor, nn

from clipper.arguments import as_tensor, real_number, shown, whole_number, widened
from clipper.candidates import CandidateSet, Kind
from clipper.errors import InputError
from clipper.pruning.objectives import listed_only
from clipper.training.adapters import in_words, predict

Evaluator = Callable[[nn.Module], Mapping[str, float]]
"""A function from a classifier to its scores by name: `accuracy`, and other measurements of the task."""
HeldOut = tuple[Tensor, Tensor] | Evaluator
"""Inputs `(instances, *shape)` and labels `(instances,)` that no run learns from, or an evaluator."""


@dataclass(frozen=True)
class EpochMetrics:
    """The metrics of one epoch; shares are numbers from 0 to 1.

    Attributes:
        epoch: counted from 1.
        loss: mean over the samples.
        accuracy: on the held-out set, if there is one.
        retained: share of the candidates that pruning kept; for sets that are not listed, the mean over the samples of
            the share that each one keeps.
        gold: share of the samples whose gold labels are still a candidate, if gold labels are known.
        seconds: time of the steps, without evaluation and checkpoints.
        pruning_seconds: the part of it that neighbour search and pruning took.
        scores: other measurements of the evaluator, by name.
    """

    epoch: int
    loss: float
    accuracy: float | None
    retained: float
    gold: float | None
    seconds: float
    pruning_seconds: float
    scores: Mapping[str, float] = field(default_factory=dict)

    @property
    def pruning_share(self) -> float:
        """Pruning time as a share of the epoch's time."""
        return self.pruning_seconds / self.seconds if self.seconds else 0.0

    def as_dict(self) -> dict[str, Any]:
        """The fields and the pruning share as a dictionary, for records."""
        return asdict(self) | {"pruning_share": self.pruning_share}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> EpochMetrics:
        """Read what `as_dict` returns.

        Raises:
            InputError: a number is missing or out of range.
        """
        names = {entry.name for entry in fields(cls)}
        if not isinstance(values, dict) or not names - {"scores"} <= values.keys() <= names | {"pruning_share"}:
            raise InputError(f"expected the metrics of an epoch, {', '.join(sorted(names))}, got {shown(values)}")
        metrics = cls(**{name: values[name] for name in names & values.keys()})
        metrics.check()
        return metrics

    def check(self) -> None:
        """Check that all numbers are in range.

        Raises:
            InputError: the message names the number.
        """
        whole_number(self.epoch, "epoch")
        real_number(self.loss, "loss")
        shares = {"accuracy": self.accuracy, "gold": self.gold}
        for name, share in {"retained": self.retained, **{k: v for k, v in shares.items() if v is not None}}.items():
            real_number(share, name, least=0, most=1 + 1e-6)  # a sum of shares is rounded
        for name in ("seconds", "pruning_seconds"):
            real_number(getattr(self, name), name, least=0)
        if not isinstance(self.scores, dict) or not all(isinstance(name, str) for name in self.scores):
            raise InputError(f"expected scores by name, got {self.scores!r}")
        for name, score in self.scores.items():
            real_number(score, name)


DRAWN = "drawn"
"""The name of a score that does not come from an evaluator: the share of samples whose gold labels are among the draws.
"""
NEAR = "near"
"""Likewise: the share of instances whose nearest neighbour, by a frozen encoder, is of the same class."""
_SUMS = ("samples", "loss", "candidates", "kept", "gold", "drawn")


@dataclass
class RunningMetrics:
    """The sums from which the metrics of the current epoch are computed."""

    samples: int = 0
    loss: float = 0.0
    candidates: float = 0
    kept: float = 0
    gold: int | None = None
    drawn: int | None = None
    """Samples whose gold labels are among the drawn candidates; None if none are drawn."""
    seconds: float = 0.0
    pruning_seconds: float = 0.0

    def count(self, losses: Tensor, before: CandidateSet, kept: CandidateSet, gold: Tensor | None) -> None:
        """Add a batch: its `losses (n,)`, its candidates before and after pruning, its `gold (n, m)`."""
        numbers = {"loss": losses.detach().sum()}  # read together at the end: each read from a GPU blocks
        rows, rows_left = listed_only(before), listed_only(kept)
        if rows is not None and rows_left is not None:
            whole, left = len(rows), len(rows_left)
        else:  # counts may exceed a float: each sample counts as one
            whole = left = before.samples
            if kept is not before:
                numbers["kept"] = (kept.log_counts - before.log_counts).exp().sum()
        if gold is not None:
            numbers["gold"] = kept.contains(gold).sum()
        read = dict(zip(numbers, torch.stack([widened(number) for number in numbers.values()]).tolist(), strict=True))
        self.samples += len(losses)
        self.loss += read["loss"]
        self.candidates += whole
        self.kept += read.get("kept", left)
        if gold is not None:
            self.gold = (self.gold or 0) + int(read["gold"])

    @property
    def sums(self) -> dict[str, float]:
        """The sums by name, without times."""
        counted = {name: getattr(self, name) for name in _SUMS}
        return {name: value for name, value in counted.items() if value is not None}

    def add(self, sums: Mapping[str, float]) -> None:
        """Add the `sums` of another object."""
        for name, value in sums.items():
            setattr(self, name, (getattr(self, name) or 0) + value)

    def metrics(self, epoch: int, measured: Mapping[str, float] | None = None) -> EpochMetrics:
        """The metrics so far, and what was `measured` on the held-out set."""
        samples, scores = max(1, self.samples), dict(measured or {})
        if self.drawn is not None:
            scores[DRAWN] = self.drawn / samples
        return EpochMetrics(
            epoch=epoch,
            loss=self.loss / samples,
            accuracy=scores.pop("accuracy", None),
            retained=self.kept / self.candidates if self.candidates else 1.0,
            gold=None if self.gold is None else self.gold / samples,
            seconds=self.seconds,
            pruning_seconds=self.pruning_seconds,
            scores=scores,
        )


def measured(classifier: nn.Module, held_out: HeldOut, kinds: Sequence[Kind] = ()) -> Mapping[str, float]:
    """The scores of a classifier on the held-out set, by name.

    Args:
        classifier: the classifier.
        held_out: inputs and labels, or an evaluator.
        kinds: the kinds of label; if there are several, there is also an accuracy for each.

    Raises:
        InputError: the evaluator returns anything but numbers by name.

    Examples:
        >>> import torch
        >>> kinds = Kind("name", 0, 2), Kind("rel", 2, 4)
        >>> measured(nn.Identity(), (torch.eye(4), torch.tensor([0, 1, 3, 3])), kinds)
        {'accuracy': 0.75, 'name': 1.0, 'rel': 0.5}
    """
    if callable(held_out):
        with in_words("the evaluator"):
            scores = held_out(classifier)
        if not isinstance(scores, Mapping):
            raise InputError(f"expected the evaluator to return numbers by name, got a {type(scores).__name__}")
        for name, score in scores.items():
            real_number(score, str(name))
        return scores
    right, labels = widened(_right(classifier, *held_out, chunk=250)), held_out[1]
    own = {kind.name: right[(labels >= kind.start) & (labels < kind.stop)] for kind in kinds if len(kinds) > 1}
    return {"accuracy": float(right.mean())} | {name: float(part.mean()) for name, part in own.items() if len(part)}


def accuracy(classifier: nn.Module, inputs: Tensor, labels: Tensor, chunk: int = 250) -> float:
    """The share of held-out instances whose most probable label is the right one.

    Args:
        classifier: returns `log_probs (instances, c)`, alone or with an embedding; its mode does not change.
        inputs: `(instances, *shape)`.
        labels: `(instances,)`.
        chunk: instances classified together.

    Returns:
        A number from 0 to 1.

    Raises:
        InputError: inputs and labels do not fit together.

    Examples:
        >>> import torch
        >>> accuracy(nn.Identity(), torch.eye(4), torch.tensor([0, 1, 2, 0]))
        0.75
    """
    return float(widened(_right(classifier, *_checked(inputs, labels), chunk)).mean())


def _right(classifier: nn.Module, inputs: Tensor, labels: Tensor, chunk: int) -> Tensor:
    """Whether each instance's most probable label is the right one, `(instances,)` bool."""
    log_probs = predict(classifier, inputs.unsqueeze(1), chunk)  # (instances, 1, c)
    return log_probs[:, 0].argmax(-1) == labels


def checked_held_out(held_out: Any) -> HeldOut | None:
    """An evaluator, or inputs and labels of the same length, as tensors."""
    if held_out is None or callable(held_out):
        evaluator: Evaluator | None = held_out
        return evaluator
    if not isinstance(held_out, tuple | list) or len(held_out) != 2:
        raise InputError(
            f"expected evaluate to be (inputs, labels) or a function of the classifier, got a {type(held_out).__name__}"
        )
    return _checked(*held_out)


def _checked(inputs: Any, labels: Any) -> tuple[Tensor, Tensor]:
    inputs, labels = as_tensor(inputs, "held-out inputs"), as_tensor(labels, "held-out labels")
    if labels.ndim != 1 or not inputs.ndim or not len(labels) or len(inputs) != len(labels):
        raise InputError(
            f"expected as many held-out inputs as labels, of shapes (instances, *shape) and (instances,), "
            f"got {tuple(inputs.shape)} and {tuple(labels.shape)}"
        )
    return inputs, labels
