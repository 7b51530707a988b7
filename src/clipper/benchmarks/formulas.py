"""HWF as published: formulas of 1, 3, 5 or 7 handwritten symbols, + − × ÷ among them, and their value, a fraction.

NGS and ABLkit use this setting. Its training and test halves share most images; the data set "distinct" replaces these.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.hwf import published_formulas, published_value
from clipper.benchmarks.networks import SymbolCnn
from clipper.benchmarks.registry import Benchmark, register
from clipper.errors import InputError
from clipper.proximity import Outlines
from clipper.training.adapters import predict

DATA = {"published": ("SymbolCnn",), "distinct": ("SymbolCnn",)}
"""The published images, and these without images that are in both halves."""


def _fewer(config: RunConfig) -> RunConfig:
    return replace(config, samples=min(config.samples, 200))


@register("formulas", data=DATA, engines=("semantic", "sampled"), quick=_fewer)
def build(config: RunConfig) -> Benchmark:
    """Published formulas of at most M symbols, and their exact value."""
    if config.samples > 10_000:
        raise InputError(f"expected at most 10,000 samples, all published formulas, got {config.samples:,}")
    if config.draws != "fixed":
        raise InputError(
            f"expected fixed draws of the published formulas, got {config.draws!r}; the rule hwf has others"
        )
    distinct, root = config.data == "distinct", config.data_root
    train = published_formulas(
        "train", config.slots, config.samples, config.seed, per_sample=config.per_sample or None, root=root,
        distinct=distinct,
    )  # fmt: skip
    test = published_formulas("test", config.slots, per_sample=1, root=root, distinct=distinct)
    assert test.gold is not None
    assert test.targets is not None
    return Benchmark(
        train,
        SymbolCnn(),
        FormulaAccuracy(test.inputs, test.gold, test.targets),
        encoder=Outlines(),
        rule=published_value,
        label_names="123456789+−×÷",
    )


@dataclass(frozen=True)
class FormulaAccuracy:
    """Accuracy on held-out symbols, and on the values of held-out formulas.

    Attributes:
        inputs: `(n, m, *shape)`.
        gold: the symbols, `(n, m)`; -1 in unused slots.
        targets: the value of each formula, as `published_value` gives it, `(n,)`.

    Examples:
        >>> three_over_two = torch.tensor([[2, 12, 1]])
        >>> inputs = torch.eye(13)[three_over_two]
        >>> FormulaAccuracy(inputs, three_over_two, torch.tensor([published_value((2, 12, 1))]))(nn.Identity())
        {'accuracy': 1.0, 'formulas': 1.0}
    """

    inputs: Tensor
    gold: Tensor
    targets: Tensor

    def __call__(self, network: nn.Module) -> dict[str, float]:
        """`accuracy` of symbols; `formulas`: how often the most probable symbols give the right value."""
        used = self.gold >= 0
        predicted = predict(network, self.inputs[used].unsqueeze(1))[:, 0].argmax(-1)  # (instances,)
        symbols = torch.full_like(self.gold, -1)
        symbols[used] = predicted
        rows = zip(symbols.tolist(), used.sum(1).tolist(), strict=True)
        values = torch.tensor([published_value(tuple(row[:length])) for row, length in rows])
        return {
            "accuracy": float((predicted == self.gold[used]).double().mean()),
            "formulas": float((values == self.targets).double().mean()),
        }
