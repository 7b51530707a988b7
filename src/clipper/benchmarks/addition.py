"""MNIST-Add: two numbers of N handwritten digits each, M = 2N slots, and the sum of the two."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from clipper import rules
from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.data.images import Images
from clipper.benchmarks.datasets import train_and_test
from clipper.benchmarks.drawing import DIGITS, image_benchmark, on_digits
from clipper.benchmarks.registry import Benchmark, register
from clipper.candidates.rules import Rule
from clipper.errors import InputError
from clipper.training.adapters import predict

_MOST_DIGITS = 2
"""Longer numbers have too many sums to find the most probable one."""


@register("addition", data=DIGITS, quick=on_digits)
def build(config: RunConfig) -> Benchmark:
    """Samples of two numbers of M/2 digits, and their sum."""
    if config.slots % 2:
        raise InputError(f"expected an even number of slots, the digits of two numbers, got {config.slots}")
    rule = rules.addition(config.slots // 2)
    _, test = train_and_test(config.data, config.data_root)
    return replace(image_benchmark(config, rule), evaluate=SumAccuracy.drawn(test, rule, config.slots, config.seed))


@dataclass(frozen=True)
class SumAccuracy:
    """Accuracy on held-out digits, and on sums of two numbers made of them.

    Attributes:
        pixels: all held-out images, `(instances, *shape)`.
        labels: their digits, `(instances,)`.
        chosen: the images of each held-out sum, `(sums, m)`; none is in two of them.
        rule: from the digits of both numbers to the sum.

    Examples:
        >>> images, chosen = torch.eye(10).log(), torch.tensor([[0, 3], [9, 5]])
        >>> measure = SumAccuracy(images, torch.arange(10), chosen, rules.addition(1))
        >>> measure(nn.Identity())
        {'accuracy': 1.0, 'sums': 1.0, 'likeliest': 1.0}
    """

    pixels: Tensor
    labels: Tensor
    chosen: Tensor
    rule: Rule

    @classmethod
    def drawn(cls, test: Images, rule: Rule, slots: int, seed: int) -> SumAccuracy:
        """Draw all held-out images into sums, each image once; images that are left over count as digits only."""
        sums = len(test) // slots
        if not sums:
            raise InputError(f"expected numbers of at most {len(test) // 2} digits, as {len(test)} images are held out")
        order = torch.randperm(len(test), generator=torch.Generator().manual_seed(seed))
        return cls(test.pixels, test.labels, order[: sums * slots].view(sums, slots), rule)

    def __call__(self, network: nn.Module) -> dict[str, float]:
        """Shares right: `accuracy` of digits, `sums` of the most probable digits, `likeliest` (most probable) sums."""
        log_probs = predict(network, self.pixels.unsqueeze(1))[:, 0]  # (instances, c)
        predicted, gold = log_probs.argmax(-1), self.labels
        sums = [self.rule.value(tuple(row)) for row in gold[self.chosen].tolist()]
        found = [self.rule.value(tuple(row)) for row in predicted[self.chosen].tolist()]
        scores = {"accuracy": float((predicted == gold).double().mean()), "sums": _share(found, sums)}
        if self.chosen.shape[1] <= 2 * _MOST_DIGITS:
            scores["likeliest"] = _share(most_probable_sums(log_probs[self.chosen].double().exp()), sums)
        return scores


def most_probable_sums(digits: Tensor) -> list[int]:
    """The most probable sum of two numbers, `(n,)`, from the probabilities of their digits, `(n, m, c)`.

    Examples:
        >>> most_probable_sums(torch.tensor([[[0.4, 0.3, 0.3], [0.4, 0.3, 0.3]]]))  # 0 + 0 has 0.16, 0 + 2 has 0.33
        [2]
    """
    first, second = (_numbers(half) for half in digits.chunk(2, dim=1))  # (n, numbers) each
    size = 2 * first.shape[1] - 1
    sums = torch.fft.irfft(torch.fft.rfft(first, size) * torch.fft.rfft(second, size), size)  # (n, size)
    most_probable: list[int] = sums.argmax(-1).tolist()
    return most_probable


def _numbers(digits: Tensor) -> Tensor:
    """The probability of each number, `(n, c ** N)`, from those of its N digits, `(n, N, c)`."""
    numbers = digits[:, 0]
    for place in digits.unbind(1)[1:]:
        numbers = (numbers[:, :, None] * place[:, None]).flatten(1)
    return numbers


def _share(found: list[int], sums: list[int]) -> float:
    return sum(map(int.__eq__, found, sums)) / len(sums)
