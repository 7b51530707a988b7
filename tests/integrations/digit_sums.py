"""What the tests with peers share: digits of which only the sums are known, a small network, the page's code."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from clipper import Candidates, Posterior, infer
from clipper.proximity import Outlines, embed
from tests.integrations.environments import write_figures

PAGE = Path(__file__).parents[2] / "docs" / "integrations.md"
SEEDS = [int(seed) for seed in os.environ.get("CLIPPER_PEER_SEEDS", "0,1,2").split(",")]


@dataclass(frozen=True)
class Digits:
    """Images and labels of `n` samples of `m` digits, and of all other digits.

    Attributes:
        images: `(n, m, 1, 8, 8)`.
        labels: `(n, m)`, for the sums only.
        unseen: `(N, 1, 8, 8)`.
        unseen_labels: `(N,)`.
    """

    images: Tensor
    labels: Tensor
    unseen: Tensor
    unseen_labels: Tensor

    @property
    def totals(self) -> list[int]:
        totals: list[int] = self.labels.sum(1).tolist()
        return totals

    @cached_property
    def candidates(self) -> Candidates:
        return Candidates.from_rule(sum, self.totals, self.labels.shape[1], 10)

    @cached_property
    def posterior(self) -> Posterior[Candidates]:
        return infer(self.candidates, embed(Outlines(), self.images))

    @cached_property
    def kept(self) -> Candidates:
        return self.posterior.prune().candidates

    def accuracy(self, network: nn.Module) -> float:
        """The share of unseen digits that a network names, in per cent."""
        with torch.no_grad():
            right = network.eval()(self.unseen).argmax(-1) == self.unseen_labels
        return round(100 * float(right.double().mean()), 1)


def digit_sums(seed: int, samples: int = 100, slots: int = 2) -> Digits:
    """So many sums of scikit-learn's digits, drawn by a seed."""
    data = load_digits()
    order = torch.randperm(len(data.target), generator=torch.Generator().manual_seed(seed))
    images, labels = torch.tensor(data.images / 16).float()[order, None], torch.tensor(data.target)[order]
    used = samples * slots
    return Digits(
        images[:used].view(samples, slots, 1, 8, 8), labels[:used].view(samples, slots), images[used:], labels[used:]
    )


def digit_network(seed: int) -> nn.Module:
    """A small convolutional network from `(N, 1, 8, 8)` to scores `(N, 10)`; seeds all that follows, too."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def batches(digits: Digits) -> DataLoader[Any]:
    """Images and the number of each sample, as the page loads them."""
    return DataLoader(TensorDataset(digits.images, torch.arange(len(digits.images))), batch_size=32, shuffle=True)


def run_page(*languages: str, **names: Any) -> dict[str, Any]:
    """Run the code that the page shows as ```python or as ```python and a peer; `names` are what its reader has."""
    for language in languages:
        blocks = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
        assert blocks, f"{PAGE.name} has no code in {language!r}"
        exec(compile("\n".join(blocks), PAGE.name, "exec"), names)
    return names


def compare(what: str, alone: Callable[[int], float], with_clipper: Callable[[int], float]) -> float:
    """How much more accurate a peer is with Clipper, in the mean over the seeds; both are written out."""
    arms = {arm.__name__: [arm(seed) for seed in SEEDS] for arm in (alone, with_clipper)}
    means = {name: mean(values) for name, values in arms.items()}
    figures = ", ".join(f"{name} {values} mean {means[name]:.1f}" for name, values in arms.items())
    write_figures(f"{what}, seeds {SEEDS}: {figures}")
    return means["with_clipper"] - means["alone"]
