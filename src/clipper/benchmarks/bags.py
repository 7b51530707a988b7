"""Multiple-instance learning: a bag is positive if at least one of its instances is; MUSK1, MUSK2 and Elephant.

Accuracy is that of ten-fold cross-validation. A run holds out one fold; ten consecutive seeds are the ten folds of one
partition of the bags.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from clipper import rules
from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.data.bags import BAG_SETS, Bags, bags
from clipper.benchmarks.networks import BagMlp
from clipper.benchmarks.registry import Benchmark, register
from clipper.training import Samples
from clipper.training.adapters import predict
from clipper.training.samples import pad_slots, stacked

FOLDS = 10
"""Parts of the bags, each held out once."""


def _on_biopsies(config: RunConfig) -> RunConfig:
    return replace(config, data="biopsies", samples=100, slots=3)


@register("bags", data=dict.fromkeys(BAG_SETS, ("BagMlp",)), engines=("semantic", "sampled"), quick=_on_biopsies)
def build(config: RunConfig) -> Benchmark:
    """The bags of nine folds, at most `samples` of them, and whether each has a positive instance.

    A bag has a slot for each of its instances; `slots` is ignored.
    """
    found = bags(config.data, config.data_root)
    held_out = folds(found.positive, config.seed // FOLDS) == config.seed % FOLDS
    chosen = (~held_out).nonzero()[:, 0][: config.samples].tolist()
    train = [found.instances[i] for i in chosen]
    targets = found.positive[chosen].tolist()
    candidates = rules.at_least_one(1).candidates(targets, [len(bag) for bag in train], 2)
    return Benchmark(
        Samples(train, candidates, targets=found.positive[chosen].long()),
        BagMlp(torch.cat(train), positive=len(train)),
        BagAccuracy.of(found, held_out),
        label_names=("negative", "positive"),
        slot="instance",
    )


def folds(positive: Tensor, seed: int) -> Tensor:
    """The fold of each bag, `(bags,)`, stratified: folds have about equal numbers of positive and of negative bags.

    Args:
        positive: whether each bag is positive, `(bags,)` bool.
        seed: of the partition.

    Examples:
        >>> fold = folds(torch.arange(40) < 20, seed=0)
        >>> fold.bincount().tolist(), fold[:20].bincount().tolist()
        ([4, 4, 4, 4, 4, 4, 4, 4, 4, 4], [2, 2, 2, 2, 2, 2, 2, 2, 2, 2])
    """
    order = torch.randperm(len(positive), generator=torch.Generator().manual_seed(seed))
    order = order[positive[order].long().argsort(stable=True)]  # negative bags, then positive ones
    fold = torch.empty_like(order)
    fold[order] = torch.arange(len(order)) % FOLDS
    return fold


@dataclass(frozen=True)
class BagAccuracy:
    """Accuracy on held-out bags. A bag is predicted positive if P(it has a positive instance) is above one half.

    Attributes:
        inputs: `(bags, m, d)`; zeros in unused slots.
        used: the slots that hold an instance, `(bags, m)` bool.
        positive: whether each bag is positive, `(bags,)` bool.

    Examples:
        >>> instances = torch.tensor([[[0.6, 0.4], [0.6, 0.4]], [[0.9, 0.1], [0.9, 0.1]]]).log()
        >>> BagAccuracy(instances, torch.ones(2, 2, dtype=torch.bool), torch.tensor([True, False]))(nn.Identity())
        {'accuracy': 1.0}
    """

    inputs: Tensor
    used: Tensor
    positive: Tensor

    @classmethod
    def of(cls, found: Bags, held_out: Tensor) -> BagAccuracy:
        """The held-out bags."""
        chosen = [found.instances[i] for i in held_out.nonzero()[:, 0].tolist()]
        longest = max(map(len, chosen))
        used = torch.arange(longest) < torch.tensor([len(bag) for bag in chosen])[:, None]
        return cls(stacked([pad_slots(bag, longest) for bag in chosen]), used, found.positive[held_out])

    def __call__(self, network: nn.Module) -> dict[str, float]:
        """`accuracy`: the share of bags that are classified correctly."""
        log_probs = predict(network, self.inputs[self.used].unsqueeze(1))[:, 0]  # (instances, 2)
        negative = torch.zeros(self.used.shape, dtype=torch.float64)
        negative[self.used] = log_probs[:, 0].double()
        predicted = negative.sum(1) < math.log(1 / 2)
        return {"accuracy": float((predicted == self.positive).double().mean())}
