"""The zoo: pools with many kinds of data, rules and disturbances, on which joint inference is tested.

A line is one kind of pool; with a seed, it is one pool. Gold labels are known, and used for measuring only.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from clipper.arguments import named_like
from clipper.benchmarks.data.images import digits, embedded_table, mnist
from clipper.benchmarks.datasets import missing_data
from clipper.benchmarks.drawing import deal
from clipper.benchmarks.shortcuts import EVEN_ODD
from clipper.candidates import Candidates
from clipper.errors import FileError, InputError
from clipper.proximity import Outlines, ProximityGraph, embed

Expectation = Literal["joint", "ambiguous", "noise", "misfit"]


@dataclass(frozen=True)
class Line:
    """One kind of pool.

    Attributes:
        name: unique; part of the seed, so that two lines never share their draws.
        data: where the instances come from, a key of `DATA`.
        rule: what is known of a sample, a key of `RULES`.
        samples: how many, `n`.
        trouble: a disturbance of the pool, a key of `TROUBLES`; "" for none.
        expects: "joint" if the pool identifies its labels, "ambiguous" if it does so up to a renaming, "noise" if the
            embeddings hold no information, "misfit" if a class is missing; None if nothing is promised.
    """

    name: str
    data: str
    rule: str
    samples: int
    trouble: str = ""
    expects: Expectation | None = None


@dataclass(frozen=True, eq=False)
class Pool:
    """A pool to infer, and what is true of it.

    Attributes:
        candidates: what the labels could be, by the targets as given.
        embeddings: `(n, m, d)`; None if the graph is given.
        gold: `(n, m)` labels; -1 in unused slots.
        wrong: `(n,)` bool: samples with a wrong target.
        known: `(n, m)` labels that are given, -1 elsewhere; None for none.
        graph: the edges, if they are given instead of embeddings.
    """

    candidates: Candidates
    embeddings: Tensor | None
    gold: Tensor
    wrong: Tensor
    known: Tensor | None = None
    graph: ProximityGraph | None = None

    @property
    def evidence(self) -> Tensor | ProximityGraph:
        """What `infer` takes besides the candidates: the embeddings or the graph."""
        given = self.embeddings if self.graph is None else self.graph
        if given is None:
            raise InputError("expected a pool with embeddings or a graph, got neither")
        return given


@dataclass(frozen=True)
class ZooRule:
    """What is known about a sample.

    Attributes:
        value: from a tuple of labels to the target.
        slots: inputs of a sample, `m`.
        fewest_slots: samples have this many to `slots` slots, and the first has `slots`; None for `slots` each.
        classes: only instances with a label below this are drawn; None for all.
        label_shares: how often each label is drawn; None for its frequency in the data.
        target_shares: how often each target is drawn; a sample's labels are then drawn evenly from its candidates.
        listed: the candidates of every sample, if enumerating label combinations would take too long.
        occurring: the label combinations that occur, equally often; None for all.
    """

    value: Callable[[tuple[int, ...]], Hashable]
    slots: int
    fewest_slots: int | None = None
    classes: int | None = None
    label_shares: tuple[float, ...] | None = None
    target_shares: Mapping[Hashable, float] | None = None
    listed: Callable[[], Sequence[tuple[int, ...]]] | None = None
    occurring: Sequence[tuple[int, ...]] | None = None

    def candidates(self, targets: Sequence[Hashable], lengths: Sequence[int], classes: int) -> Candidates:
        """What the labels of samples with these targets and numbers of slots could be."""
        if self.listed is not None:
            return Candidates.from_lists([self.listed()], classes).batch([0] * len(targets))
        return Candidates.from_rule(self.value, targets, lengths, classes, impossible="keep")


@dataclass(frozen=True, eq=False)
class Instances:
    """Labelled instances to draw from.

    Attributes:
        inputs: `(instances, …)`.
        labels: `(instances,)`.
        classes: how many labels there are.
        encoder: from inputs to `(instances, d)`; None if the inputs are vectors.
    """

    inputs: Tensor
    labels: Tensor
    classes: int
    encoder: Outlines | None = None

    def below(self, classes: int) -> Instances:
        """The instances with a label below `classes`."""
        chosen = self.labels < classes
        return replace(self, inputs=self.inputs[chosen], labels=self.labels[chosen], classes=classes)

    def embeddings(self, ids: Tensor) -> Tensor:
        """The embeddings of the instances with the ids `(n, m)`; zeros for an id of -1 (an unused slot)."""
        inputs = self.inputs[ids.clamp(min=0)]
        vectors = inputs if self.encoder is None else embed(self.encoder, inputs)
        return vectors.masked_fill(ids[..., None] < 0, 0)


_PER_CLASS = 400
"""Synthetic instances of each class; of the most frequent class, if their numbers differ."""


def _standardised(name: str) -> Instances:
    """A table of scikit-learn's, every feature with mean 0 and deviation 1."""
    features, labels = embedded_table(name)
    scaled = (features - features.mean(0)) / features.std(0)
    return Instances(scaled, labels, int(labels.max()) + 1)


def _gaussians(
    generator: torch.Generator, *, separation: float, dimension: int = 16, clusters: int = 1, imbalance: float = 1
) -> Instances:
    """Ten classes of Gaussian clusters, every two centres equally far apart.

    Args:
        generator: of centres and noise.
        separation: distance of a centre from the origin; the noise has standard deviation 1 in every direction.
        dimension: of the embeddings; at least as many as there are clusters.
        clusters: of each class.
        imbalance: the frequency of the most frequent label divided by that of the rarest.
    """
    classes = 10
    sizes = [round(_PER_CLASS * imbalance ** (-place / (classes - 1))) for place in range(classes)]
    labels = torch.repeat_interleave(torch.tensor(sizes))
    cluster = torch.randint(clusters, labels.shape, generator=generator)
    directions = torch.linalg.qr(torch.randn(dimension, classes * clusters, generator=generator)).Q.T
    centres = separation * directions.view(classes, clusters, dimension)
    noise = torch.randn(len(labels), dimension, generator=generator)
    return Instances(centres[labels, cluster] + noise, labels, classes)


def _noise(generator: torch.Generator) -> Instances:
    """Vectors that are independent of their labels."""
    labels = torch.arange(10).repeat(_PER_CLASS)
    return Instances(torch.randn(len(labels), 16, generator=generator), labels, 10)


@cache
def _digits() -> Instances:
    images = digits()
    return Instances(images.pixels, images.labels, images.classes, Outlines())


@cache
def _mnist(root: Path | None) -> Instances:
    images = mnist("train", root)
    return Instances(images.pixels, images.labels, images.classes, Outlines())


Source = Callable[[torch.Generator, Path | None], Instances]
DATA: dict[str, Source] = {
    "digits": lambda _, __: _digits(),
    "mnist": lambda _, root: _mnist(root),
    "iris": lambda _, __: _standardised("iris"),
    "wine": lambda _, __: _standardised("wine"),
    "cancer": lambda _, __: _standardised("breast_cancer"),
    # Among 300 instances, one nearest neighbour in seven is of another class.
    "gaussians": lambda generator, _: _gaussians(generator, separation=3.6),
    "imbalanced": lambda generator, _: _gaussians(generator, separation=3.6, imbalance=10),
    "clusters": lambda generator, _: _gaussians(generator, separation=4.75, dimension=32, clusters=3),
    "noise": lambda generator, _: _noise(generator),
}
"""Where instances come from."""


def _luhn(labels: tuple[int, ...]) -> int:
    """The sum of the digits, every second one doubled and its own digits added up, modulo ten."""
    doubled = (sum(divmod(2 * label, 10)) if place % 2 else label for place, label in enumerate(reversed(labels)))
    return sum(doubled) % 10


@cache
def _sudokus() -> list[tuple[int, ...]]:
    """All 288 grids of four by four: rows, columns and boxes hold every label once."""
    rows = list(itertools.permutations(range(4)))
    pairs = [a + b for a in rows for b in rows if len({*a[:2], *b[:2]}) == 4 and all(map(int.__ne__, a, b))]
    return [
        top + low
        for top in pairs
        for low in pairs
        if all(len({top[j], top[j + 4], low[j], low[j + 4]}) == 4 for j in range(4))
    ]


def _multiset(labels: tuple[int, ...]) -> Hashable:
    return tuple(sorted(labels))


RULES: dict[str, ZooRule] = {
    "sum-2": ZooRule(sum, 2),
    "sum-3": ZooRule(sum, 3),
    "sum-4": ZooRule(sum, 4),
    "even-odd": ZooRule(EVEN_ODD.value, EVEN_ODD.slots, occurring=EVEN_ODD.seen),
    "max-3": ZooRule(max, 3),
    "difference": ZooRule(lambda labels: abs(labels[0] - labels[1]), 2),
    "max-minus-min-3": ZooRule(lambda labels: max(labels) - min(labels), 3),
    "sum-3-mod-10": ZooRule(lambda labels: (labels[0] + labels[1] + labels[2]) % 10, 3),
    "product-3-mod-10": ZooRule(lambda labels: labels[0] * labels[1] * labels[2] % 10, 3),
    "less": ZooRule(lambda labels: int(labels[0] < labels[1]), 2),
    "equal": ZooRule(lambda labels: int(labels[0] == labels[1]), 2, target_shares={0: 0.5, 1: 0.5}),
    "xor-3": ZooRule(lambda labels: (labels[0] + labels[1] + labels[2]) % 2, 3, classes=2),
    "or-3": ZooRule(max, 3, classes=2),
    "and-3": ZooRule(min, 3, classes=2),
    "exactly-one-4": ZooRule(lambda labels: int(sum(labels) == 1), 4, classes=2, label_shares=(0.7, 0.3)),
    "luhn-3": ZooRule(_luhn, 3, target_shares={0: 1}),
    # The weights add up to 0 modulo 5, so shifting all labels changes no target. With two slots, a sample's five
    # candidates are shifts of one another: without a known label, none can be discarded. With three, four in five can.
    "shift-mod-5": ZooRule(lambda labels: (labels[0] + 4 * labels[1]) % 5, 2, classes=5),
    "shift-3-mod-5": ZooRule(lambda labels: (labels[0] + labels[1] + 3 * labels[2]) % 5, 3, classes=5),
    "sum-3-is-0-mod-10": ZooRule(lambda labels: sum(labels) % 10, 3, target_shares={0: 1}),
    "sudoku": ZooRule(lambda labels: int(labels in _sudokus()), 16, classes=4, target_shares={1: 1}, listed=_sudokus),
    "proportions-4": ZooRule(_multiset, 4),
    "proportions-4-8": ZooRule(_multiset, 8, fewest_slots=4, classes=4),
}
"""The rules: what is known about a sample."""


@dataclass(frozen=True)
class Trouble:
    """A disturbance of a pool; by default none.

    Attributes:
        shuffled: embeddings are permuted at random.
        skewed: label k is drawn with weight (k + 1) ** -skewed; 0 for its frequency in the data.
        one_target: every sample has the same target.
        background: all instances with the same target share a vector, this many times as large as the embeddings.
        wrong: the share of samples with another sample's target.
        known: how many instances have their labels given.
        missing: how many of the classes, the last ones, are missing from the labels that candidates may have.
        triangles: samples come in threes with the same formula, connected slot by slot by given edges; no embeddings.
    """

    shuffled: bool = False
    skewed: float = 0
    one_target: bool = False
    background: float = 0
    wrong: float = 0
    known: int = 0
    missing: int = 0
    triangles: bool = False


TROUBLES: dict[str, Trouble] = {
    "": Trouble(),
    "shuffled": Trouble(shuffled=True),
    "skewed": Trouble(skewed=1.5),
    "one-target": Trouble(one_target=True),
    "backgrounds": Trouble(background=1),
    "triangles": Trouble(triangles=True),
    **{f"wrong-{percent}": Trouble(wrong=percent / 100) for percent in (2, 5, 10, 20)},
    **{f"known-{known}": Trouble(known=known) for known in (1, 10)},
    "missing-1": Trouble(missing=1),
}
"""The disturbances of pools."""


def _lines() -> tuple[Line, ...]:
    tasks: list[tuple[str, str, int, Expectation | None]] = [
        ("digits", "sum-3", 100, "joint"),
        ("digits", "sum-4", 100, "joint"),
        ("mnist", "sum-3", 100, "joint"),
        ("mnist", "sum-3", 1_000, "joint"),
        ("mnist", "sum-4", 100, "joint"),
        ("gaussians", "sum-3", 100, "joint"),
        ("gaussians", "sum-4", 100, "joint"),
        ("digits", "sum-3-mod-10", 100, "joint"),
        ("digits", "product-3-mod-10", 100, "joint"),
        ("digits", "xor-3", 100, "joint"),
        ("cancer", "xor-3", 100, "joint"),
        ("gaussians", "xor-3", 100, "joint"),
        ("gaussians", "exactly-one-4", 100, "joint"),
        ("iris", "sum-2", 75, "joint"),
        ("wine", "sum-2", 80, "joint"),
        ("cancer", "sum-3", 100, "joint"),
        ("digits", "difference", 100, "ambiguous"),
        ("gaussians", "difference", 100, "ambiguous"),
        ("digits", "max-minus-min-3", 100, "ambiguous"),
        ("gaussians", "max-minus-min-3", 100, "ambiguous"),
        ("digits", "shift-3-mod-5", 60, "ambiguous"),
        ("gaussians", "shift-3-mod-5", 60, "ambiguous"),
        # Few pairs of digits occur: two namings satisfy the sums, and so do maps that give two classes one label.
        ("mnist", "even-odd", 300, "ambiguous"),
        # Labels that are all 0 satisfy every formula: whether a pool identifies more depends on the draw.
        ("digits", "sum-3-is-0-mod-10", 100, None),
        ("imbalanced", "sum-3", 100, None),
        ("clusters", "sum-3", 100, None),
        ("digits", "max-3", 100, None),
        ("digits", "less", 100, None),
        ("digits", "equal", 100, None),
        ("digits", "or-3", 100, None),
        ("digits", "and-3", 100, None),
        ("digits", "luhn-3", 100, None),
        ("digits", "sudoku", 20, None),
        ("digits", "proportions-4", 100, None),
        ("digits", "proportions-4-8", 60, None),
        ("wine", "proportions-4-8", 25, None),
    ]
    troubled: list[tuple[str, str, int, str, Expectation | None]] = [
        ("edges", "xor-3", 90, "triangles", None),
        ("digits", "shift-mod-5", 60, "", None),
        ("digits", "difference", 100, "known-1", None),
        ("digits", "shift-3-mod-5", 60, "known-1", None),
    ]
    for rule in ("sum-3", "xor-3"):
        for samples in (20, 50, 100):
            troubled.append(("digits", rule, samples, "shuffled", "noise"))
            troubled.append(("noise", rule, samples, "skewed", "noise"))
            troubled.append(("noise", rule, samples, "one-target", "noise"))
        troubled.append(("noise", rule, 30, "skewed", "noise"))
        troubled.append(("digits", rule, 100, "backgrounds", None))
        few = rule == "xor-3"  # fewer lines, to leave time for others
        troubled.extend(("digits", rule, samples, "", None) for samples in ((5, 10) if few else (5, 20)))
        troubled.extend(("digits", rule, 100, f"wrong-{percent}", None) for percent in (2, 5, 10, 20)[few:])
        troubled.extend(("digits", rule, 100, f"known-{known}", None) for known in (1, 10)[: 2 - few])
    troubled += [
        ("mnist", "sum-2", 300, "missing-1", "misfit"),
        ("mnist", "sum-3", 300, "missing-1", "misfit"),
        ("gaussians", "sum-3", 300, "missing-1", "misfit"),
        ("mnist", "sum-3", 100, "missing-1", None),
    ]
    lines = [(data, rule, samples, "", expects) for data, rule, samples, expects in tasks] + troubled
    return tuple(
        Line("/".join(filter(None, (rule, data, str(samples), trouble))), data, rule, samples, trouble, expects)
        for data, rule, samples, trouble, expects in lines
    )


LINES: tuple[Line, ...] = _lines()
"""All lines of the zoo."""


def lines_like(patterns: Sequence[str]) -> list[Line]:
    """The lines whose names match one of the patterns, in the zoo's order; all lines for no pattern.

    Raises:
        InputError: if nothing matches a pattern.

    Examples:
        >>> [line.name for line in lines_like(["sum-3/digits/?", "sudoku/*"])]
        ['sudoku/digits/20', 'sum-3/digits/5']
    """
    first = f"the first of {len(LINES)} lines is {LINES[0].name}"
    lines = {line.name: line for line in LINES}
    return named_like(patterns, lines, "a line of the zoo, or a pattern such as 'sum-3/*'", first)


def make_pool(line: Line, seed: int, data_root: Path | None = None) -> Pool:
    """Draw one pool of a line; line and seed determine everything.

    Instances are reused only if the data set has too few.

    Args:
        line: which kind of pool.
        seed: of all draws.
        data_root: the folder with the data sets; the usual folders if not given.

    Raises:
        FileError: the line's data are not here.

    Examples:
        >>> pool = make_pool(*lines_like(["sum-3/digits/100"]), seed=0)
        >>> pool.candidates.samples, pool.gold.shape, pool.embeddings.shape
        (100, torch.Size([100, 3]), torch.Size([100, 3, 392]))
    """
    reason = missing_data(line.data, data_root)
    if reason is not None:
        raise FileError(f"{line.name}: {reason}")
    generator = torch.Generator().manual_seed(zlib.crc32(line.name.encode()) << 20 | seed)
    rule, trouble = RULES[line.rule], TROUBLES[line.trouble]
    if trouble.triangles:
        return _triangles(rule, line.samples, generator)
    instances = DATA[line.data](generator, data_root)
    if rule.classes is not None and rule.classes < instances.classes:
        instances = instances.below(rule.classes)
    gold = _draw_labels(rule, trouble, instances, line.samples, generator)  # (n, m)
    embeddings = instances.embeddings(deal(instances.labels, gold, generator, line.data))
    lengths, targets = (gold >= 0).sum(1).tolist(), _targets(rule, gold)
    if trouble.shuffled:
        flat = embeddings.flatten(0, 1)
        embeddings = flat[torch.randperm(len(flat), generator=generator)].view_as(embeddings)
    if trouble.background:
        embeddings = embeddings + trouble.background * _backgrounds(embeddings, targets, generator)
    wrong = torch.zeros(line.samples, dtype=torch.bool)
    if trouble.wrong:
        targets, wrong = _falsified(targets, trouble.wrong, generator)
    known = None
    if trouble.known:
        known = torch.full_like(gold, -1)
        chosen = torch.randperm(gold.numel(), generator=generator)[: trouble.known]
        known.view(-1)[chosen] = gold.view(-1)[chosen]
    classes = instances.classes - trouble.missing
    return Pool(rule.candidates(targets, lengths, classes), embeddings, gold, wrong, known)


def _targets(rule: ZooRule, gold: Tensor) -> list[Hashable]:
    return [rule.value(tuple(label for label in row if label >= 0)) for row in gold.tolist()]


def _draw_labels(
    rule: ZooRule, trouble: Trouble, instances: Instances, samples: int, generator: torch.Generator
) -> Tensor:
    """Labels for every slot, `(n, m)`; -1 in unused ones."""
    classes = instances.classes
    if rule.occurring is not None:
        return torch.tensor(rule.occurring)[torch.randint(len(rule.occurring), (samples,), generator=generator)]
    if rule.target_shares is not None:
        return _labels_by_target(rule, rule.target_shares, samples, classes, generator)
    lengths = torch.full((samples, 1), rule.slots)
    if rule.fewest_slots is not None:
        lengths[1:] = torch.randint(rule.fewest_slots, rule.slots + 1, (samples - 1, 1), generator=generator)
    used = torch.arange(rule.slots) < lengths  # (n, m)
    number = int(used.sum())
    shares = rule.label_shares
    if trouble.skewed:
        shares = tuple((label + 1) ** -trouble.skewed for label in range(classes))
    if shares is None:  # as often as the data have them
        times = math.ceil(number / len(instances.labels))
        order = torch.randperm(len(instances.labels), generator=generator).repeat(times)
        drawn = instances.labels[order[:number]]
    else:
        drawn = torch.multinomial(torch.tensor(shares), number, replacement=True, generator=generator)
    labels = torch.full((samples, rule.slots), -1).masked_scatter(used, drawn)
    if trouble.one_target:
        targets = _targets(rule, labels)
        commonest = max(targets, key=targets.count)
        return _labels_by_target(rule, {commonest: 1}, samples, classes, generator)
    return labels


def _labels_by_target(
    rule: ZooRule, shares: Mapping[Hashable, float], samples: int, classes: int, generator: torch.Generator
) -> Tensor:
    """Draw targets by their shares, then labels uniformly from their candidates."""
    weights = torch.tensor(list(shares.values()), dtype=torch.float)
    drawn = torch.multinomial(weights, samples, replacement=True, generator=generator)
    targets = [list(shares)[place] for place in drawn.tolist()]
    candidates = rule.candidates(targets, [rule.slots] * samples, classes)
    seed = int(torch.randint(2**31, (1,), generator=generator))
    return candidates.draw(1, seed).labels.long()


def _backgrounds(embeddings: Tensor, targets: Sequence[Hashable], generator: torch.Generator) -> Tensor:
    """A random vector for each target, `(n, 1, d)`, scaled to the spread of the embeddings."""
    place = {target: i for i, target in enumerate(dict.fromkeys(targets))}
    scale = embeddings.flatten(0, 1).std(0).square().mean().sqrt()
    vectors = scale * torch.randn(len(place), embeddings.shape[-1], generator=generator)
    return vectors[[place[target] for target in targets], None]


def _falsified(targets: Sequence[Hashable], share: float, generator: torch.Generator) -> tuple[list[Hashable], Tensor]:
    """Give a share of the samples a wrong target: that of another sample. Returns all targets, and which are wrong."""
    given, n = list(targets), len(targets)
    wrong = torch.zeros(n, dtype=torch.bool)
    wrong[torch.randperm(n, generator=generator)[: max(1, round(share * n))]] = True
    for sample in wrong.nonzero().view(-1).tolist():
        others = [target for target in targets if target != targets[sample]]
        given[sample] = others[int(torch.randint(len(others), (1,), generator=generator))]
    return given, wrong


def _triangles(rule: ZooRule, samples: int, generator: torch.Generator) -> Pool:
    """Triples of samples with the same formula, connected slot by slot; every candidate fits, if all three have it."""
    classes, slots = rule.classes or 10, rule.slots
    labels = torch.randint(classes, (samples // 3, slots), generator=generator)
    gold = labels.repeat_interleave(3, 0)
    first = 3 * torch.arange(samples // 3)
    tied = torch.cat([torch.stack([first + a, first + b]) for a, b in itertools.permutations(range(3), 2)], 1)
    source, target = (slots * tied[:, :, None] + torch.arange(slots)).flatten(1)
    candidates = rule.candidates(_targets(rule, gold), [slots] * samples, classes)
    wrong = torch.zeros(samples, dtype=torch.bool)
    return Pool(candidates, None, gold, wrong, graph=ProximityGraph.from_edges(source, target))
