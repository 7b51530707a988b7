"""Reasoning shortcuts on digits: tasks whose formulas also hold under wrong concepts; rsbench (arXiv 2406.10368).

Here, as in rsbench, the concepts of a sample are its digits, and its label is the formula's value. A run trains on some
combinations of digits only. Its labels, its concepts and the calibration of its concepts are measured.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from clipper.benchmarks.config import AUTO, RunConfig
from clipper.benchmarks.data.images import Images
from clipper.benchmarks.datasets import train_and_test
from clipper.benchmarks.drawing import deal
from clipper.benchmarks.registry import Benchmark, network_of, register
from clipper.candidates import Candidates, CandidateSet
from clipper.errors import InputError
from clipper.labelling import NamingMixture, identify
from clipper.labelling.namings import NAMING_BUDGET, all_namings
from clipper.proximity import Outlines
from clipper.training import Samples
from clipper.training.adapters import predict

DATA = {"digits": ("DigitsMlp", "DigitsCnn"), "mnist": ("LeNet", "MnistCnn")}
HELD_OUT = 1_000
"""Number of held-out samples of training combinations, and of other combinations."""
BINS = 10
"""Bins of the calibration error, as in rsbench, BEARS and NeSyDM."""
_TIE = 1e-5
"""Probabilities that differ by less count as equal."""


@dataclass(frozen=True)
class ShortcutTask:
    """What is known about a sample of digits, and which combinations of digits are in the training set.

    Attributes:
        classes: digits 0 … c − 1.
        seen: these combinations, each of m digits.
        value: from the digits of a sample to its label.
    """

    classes: int
    seen: tuple[tuple[int, ...], ...]
    value: Callable[[Sequence[int]], int]

    @property
    def slots(self) -> int:
        """Digits per sample."""
        return len(self.seen[0])

    @property
    def unseen(self) -> list[tuple[int, ...]]:
        """All other combinations of the same digits."""
        known = set(self.seen)
        return [row for row in itertools.product(range(self.classes), repeat=self.slots) if row not in known]


def _both_orders(*pairs: tuple[int, int]) -> tuple[tuple[int, ...], ...]:
    """The pairs, and the same pairs with their digits exchanged."""
    return tuple(sorted({*pairs, *(pair[::-1] for pair in pairs)}))


def _system(digits: Sequence[int]) -> int:
    """The values of both equations in one number."""
    a, b, c, d = digits
    return 100 * (2 * a + b) + c + d


def _parity(bits: Sequence[int]) -> int:
    return sum(bits) % 2


HALF = ShortcutTask(5, _both_orders((0, 0), (0, 1), (2, 3), (2, 4)), sum)
"""rsbench's MNAdd-Half: sums of digits 0 to 4."""
EVEN_ODD = ShortcutTask(10, _both_orders((0, 6), (2, 8), (4, 6), (4, 8), (1, 5), (3, 7), (1, 9), (3, 9)), sum)
"""rsbench's MNAdd-EvenOdd: sums of two even digits, or of two odd ones."""
MATH = ShortcutTask(5, tuple((a, b, c, 7 - c) for a in range(3) for b in range(3) for c in (3, 4)), _system)
"""MNMath: the values of 2a + b and c + d, as in rsbench's picture of it; c and d are 3 and 4, a and b are below."""
LOGIC = ShortcutTask(2, tuple(itertools.product(range(2), repeat=4)), _parity)
"""MNLogic: whether the number of ones among four bits is odd, rsbench's default formula; all combinations."""


def _on_digits(task: ShortcutTask) -> Callable[[RunConfig], RunConfig]:
    """The quick form of a task: few samples of the embedded digits."""
    return lambda config: replace(
        config, data="digits", network=AUTO, slots=task.slots, samples=min(config.samples, 150)
    )


@register("mnist-half", data=DATA, quick=_on_digits(HALF))
def half(config: RunConfig) -> Benchmark:
    """Sums of digits 0 to 4, of which seven combinations are seen."""
    return digit_benchmark(config, HALF)


@register("mnist-even-odd", data=DATA, quick=_on_digits(EVEN_ODD))
def even_odd(config: RunConfig) -> Benchmark:
    """Sums of two even or two odd digits, of which sixteen combinations are seen."""
    return digit_benchmark(config, EVEN_ODD)


@register("mnmath", data=DATA, quick=_on_digits(MATH))
def mnmath(config: RunConfig) -> Benchmark:
    """A system of two equations in four digits."""
    return digit_benchmark(config, MATH)


@register("mnlogic", data=DATA, quick=_on_digits(LOGIC))
def mnlogic(config: RunConfig) -> Benchmark:
    """The parity of four bits."""
    return digit_benchmark(config, LOGIC)


def digit_benchmark(config: RunConfig, task: ShortcutTask) -> Benchmark:
    """Samples of the combinations that a task shows, and held-out ones of these and of all others."""
    check_slots(config, task.slots)
    train, test = train_and_test(config.data, config.data_root)
    generator = torch.Generator().manual_seed(config.seed)
    chosen = _drawn(train, task.seen, config.samples, generator)
    gold = train.labels[chosen]
    values = [task.value(row) for row in gold.tolist()]
    candidates = Candidates.from_rule(task.value, values, slots=task.slots, classes=task.classes)
    outputs = Outputs.of(task)
    return Benchmark(
        Samples(train.pixels[chosen], candidates, gold=gold, targets=torch.tensor(values)),
        network_of(config)(task.classes),
        ConceptQuality(
            test.pixels,
            test.labels,
            _drawn(test, task.seen, HELD_OUT, generator),
            _drawn(test, task.unseen, HELD_OUT, generator) if task.unseen else None,
            outputs,
            Shortcuts.of(candidates, gold),
        ),
        encoder=Outlines(),
        rule=task.value,
        label_names=[str(digit) for digit in range(task.classes)],
    )


def check_slots(config: RunConfig, slots: int) -> None:
    """Check that the configuration has the task's number of slots.

    Raises:
        InputError: it has another number.
    """
    if config.slots != slots:
        raise InputError(f"expected {slots} slots, as {config.rule} has, got {config.slots}; pass --slots {slots}")


def _drawn(images: Images, rows: Sequence[tuple[int, ...]], samples: int, generator: torch.Generator) -> Tensor:
    """Images of random combinations, `(samples, m)`; all combinations are equally frequent."""
    gold = torch.tensor(rows)[torch.randint(len(rows), (samples,), generator=generator)]
    return deal(images.labels, gold, generator, images.name)


@dataclass(frozen=True, eq=False)
class Outputs:
    """The function from the concepts of a sample to its label, as a table.

    Attributes:
        rows: every combination of concepts, `(k, m)`.
        output: the number of each combination's label, `(k,)`.
    """

    rows: Tensor
    output: Tensor

    @classmethod
    def of(cls, task: ShortcutTask) -> Outputs:
        """All combinations of a task."""
        rows = torch.tensor(list(itertools.product(range(task.classes), repeat=task.slots)))
        values = torch.tensor([task.value(row) for row in rows.tolist()])
        return cls(rows, torch.unique(values, return_inverse=True)[1])

    def probability(self, concepts: Tensor) -> Tensor:
        """The probability of each label, `(n, outputs)`, from those of the concepts, `(n, m, c)`."""
        size, parts = int(self.output.max()) + 1, []
        for part in torch.split(concepts, 128):
            rows = torch.stack([part[:, slot, self.rows[:, slot]] for slot in range(part.shape[1])]).prod(0)  # (n, k)
            parts.append(rows.new_zeros(len(part), size).index_add_(1, self.output, rows))
        return torch.cat(parts)

    def value(self, concepts: Tensor) -> Tensor:
        """The number of each sample's label, `(n,)`, given its concepts `(n, m)`."""
        return self.probability(nn.functional.one_hot(concepts, int(self.rows.max()) + 1).float()).argmax(1)


@dataclass(frozen=True, eq=False)
class Shortcuts:
    """What the formulas of a pool do not determine, given its gold labels.

    Attributes:
        maps: how many wrong maps of the concepts satisfy all formulas, many-to-one maps included; a lower bound.
        namings: how many one-to-one maps satisfy them, the right one included.
        identified: concepts on which all of these agree, `(c,)` bool.
    """

    maps: int
    namings: int
    identified: Tensor

    @classmethod
    def of(cls, candidates: CandidateSet, gold: Tensor) -> Shortcuts:
        """Search with `identify`; if its budget runs out, at least the symmetries of the formulas are found."""
        every = identify(candidates, gold, budget=NAMING_BUDGET)
        distinct = all_namings(candidates, gold)
        return cls(max(every.order, distinct.order) - 1, distinct.order, distinct.identified)


@dataclass(frozen=True, eq=False)
class ConceptQuality:
    """Accuracy of labels and concepts, and calibration of concepts.

    For a `NamingMixture`, the label probabilities are computed under each naming and averaged, because one naming
    holds for all concepts of a sample. If k concepts tie for the most probable, and the right one is among them, the
    prediction counts as 1/k right.

    Attributes:
        inputs: held-out instances, `(instances, *shape)`.
        gold: their concepts, `(instances,)`.
        seen: held-out samples of the combinations that were learned from, by instance, `(n, m)`.
        unseen: held-out samples of other combinations; None if there are none.
        outputs: from concepts to labels.
        shortcuts: what the training pool does not determine.

    Examples:
        >>> inputs, sums = torch.eye(10).log(), Outputs.of(EVEN_ODD)
        >>> exact = Shortcuts(35, 2, torch.zeros(10).bool())
        >>> quality = ConceptQuality(inputs, torch.arange(10), torch.tensor([[0, 6], [1, 9]]), None, sums, exact)
        >>> {name: round(score, 3) for name, score in quality(nn.Identity()).items()}
        {'accuracy': 1.0, 'labels': 1.0, 'ece': 0.0, 'shortcuts': 35.0, 'namings': 2.0}
    """

    inputs: Tensor
    gold: Tensor
    seen: Tensor
    unseen: Tensor | None
    outputs: Outputs
    shortcuts: Shortcuts

    def __call__(self, network: nn.Module) -> dict[str, float]:
        """`accuracy` and `ece` of concepts, accuracy of `labels`, numbers of `shortcuts` and `namings`, and more."""
        mixture = network if isinstance(network, NamingMixture) else None
        classifier = network if mixture is None else mixture.network
        predicted = predict(classifier, self.inputs.unsqueeze(1))[:, 0].double().exp()  # (instances, c)
        orders = torch.arange(predicted.shape[1])[None] if mixture is None else mixture.orders
        concepts = torch.stack([predicted[:, order] for order in orders]).mean(0)
        shown = self.seen.flatten()
        sure, right = judge(concepts[shown], self.gold[shown])
        scores = {
            "accuracy": float(right.mean()),
            "labels": self._labels(predicted, orders, self.seen),
            "ece": calibration_error(sure, right),
            "shortcuts": float(self.shortcuts.maps),
            "namings": float(self.shortcuts.namings),
        }
        if self.unseen is not None:
            scores["unseen"] = self._labels(predicted, orders, self.unseen)
        known = self.shortcuts.identified[self.gold[shown]]
        if bool(known.any()):
            scores["identified"] = float(right[known].mean())
        if mixture is not None:
            scores["joint"] = float(mixture.pool.verdict == "joint")
        return scores

    def _labels(self, predicted: Tensor, orders: Tensor, samples: Tensor) -> float:
        """The accuracy of labels, from the probabilities of concepts, averaged over the namings."""
        labels = torch.stack([self.outputs.probability(predicted[:, order][samples]) for order in orders]).mean(0)
        return float(judge(labels, self.outputs.value(self.gold[samples]))[1].mean())


def judge(probability: Tensor, gold: Tensor) -> tuple[Tensor, Tensor]:
    """Confidence and accuracy of each prediction, `(n,)` each; in a tie of k, the right one counts 1/k.

    Examples:
        >>> sure, right = judge(torch.tensor([[0.5, 0.5, 0.0], [0.1, 0.2, 0.7]]), torch.tensor([1, 2]))
        >>> sure.tolist(), right.tolist()
        ([0.5, 0.699999988079071], [0.5, 1.0])
    """
    sure = probability.amax(1)
    best = probability >= sure[:, None] - _TIE
    return sure, best.gather(1, gold[:, None])[:, 0] / best.sum(1)


def calibration_error(sure: Tensor, right: Tensor) -> float:
    """Expected calibration error: the gap between confidence and accuracy, both `(n,)`, averaged over ten equal bins.

    Examples:
        >>> calibration_error(torch.tensor([0.75, 0.75, 0.5, 0.5]), torch.tensor([1.0, 1.0, 1.0, 0.0]))
        0.125
    """
    sure, right = sure.double(), right.double()
    place = ((sure * BINS).ceil().long() - 1).clamp(0, BINS - 1)
    gaps = torch.zeros(BINS, dtype=torch.double).index_add_(0, place, sure - right)
    return float(gaps.abs().sum() / len(sure))
