"""LTNtorch's example of MNIST addition, alone and with its quantifier restricted to what Clipper keeps."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from clipper.benchmarks.race.heat import Heat
from clipper.benchmarks.race.with_clipper import kept_by_inference
from clipper.errors import require
from clipper.integrations.ltn import guard

Condition = Callable[..., Tensor]
"""Restricts what a quantifier ranges over: a function of the samples' variable and the labels' variables."""


def alone(heat: Heat) -> None:
    """Train on "there are labels whose sum is the target"."""

    def has_total(sample: Any, *labels: Any) -> Tensor:
        total: Tensor = sum(label.value for label in labels)
        return torch.eq(total, heat.targets[sample.value])

    _train(heat, has_total)


def with_joint_inference(heat: Heat) -> None:
    """Train on "there are such labels among the candidates that joint inference keeps"."""
    _train(heat, guard(kept_by_inference(heat)))


class _Digit(torch.nn.Module):
    """The truth value of "the image shows the label": the probability that the network gives to the label."""

    def __init__(self, scores: torch.nn.Module) -> None:
        super().__init__()
        self.scores = scores

    def forward(self, image: Tensor, label: Tensor) -> Tensor:
        """From images and labels `(rows, …)` to truth values `(rows,)`."""
        probabilities: Tensor = self.scores(image).softmax(1)
        return probabilities.gather(1, label.long().view(-1, 1))[:, 0]


def _train(heat: Heat, condition: Condition) -> None:
    ltn: Any = require("ltn", peer="LTNtorch")
    conjunction = ltn.Connective(ltn.fuzzy_ops.AndProd())
    exists = ltn.Quantifier(ltn.fuzzy_ops.AggregPMean(p=2), quantifier="e")
    forall = ltn.Quantifier(ltn.fuzzy_ops.AggregPMeanError(p=heat.settings["forall_p"]), quantifier="f")
    digit = ltn.Predicate(_Digit(heat.scores))
    slots = range(heat.inputs.shape[1])
    labels = [ltn.Variable(f"label_{slot}", torch.arange(heat.classes)) for slot in slots]
    optimiser = torch.optim.Adam(heat.scores.parameters(), lr=heat.settings["lr"])
    for ids in heat.batches(heat.settings["batch"]):
        images = [ltn.Variable(f"image_{slot}", heat.inputs[ids, slot]) for slot in slots]
        sample = ltn.Variable("sample", ids)
        ltn.diag(*images, sample)  # the images of one sample belong together
        all_digits = reduce(conjunction, [digit(image, label) for image, label in zip(images, labels, strict=True)])
        some = exists(labels, all_digits, cond_vars=[sample, *labels], cond_fn=condition, p=_p(heat.share))
        optimiser.zero_grad()
        (1 - forall([*images, sample], some).value).backward()
        optimiser.step()
        heat.step(len(ids))


def _p(share: float) -> int:
    """The example's schedule of p, spread over the run.

    Examples:
        >>> [_p(share) for share in (0.0, 0.19, 0.2, 0.59, 0.6, 1.0)]
        [1, 1, 2, 4, 6, 6]
    """
    return (1, 2, 4, 6)[min(3, int(5 * share + 1e-9))]
