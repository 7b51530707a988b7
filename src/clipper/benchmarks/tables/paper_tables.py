"""The paper's tables, and our own on its tasks: joint inference, single changes, draws, neighbours, encoders."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.tables.layout import FROZEN, USUAL, VARIANTS, Column, Row, Table, rows_of

CEILING = Row("gold labels", "none", {"engine": "semantic", "objective": "gold"})
"""The same network, trained on the gold labels of the same images."""
EXACT_LOSS = Row(
    "exact loss", "none", {"engine": "semantic", "objective": "none", "per_sample": 0, "batch": 8, "lr": 3e-4}
)
"""Semantic loss over all candidates, however many. A long sum contains little information, so training needs many
steps. The learning rate is small, because otherwise the network may stop predicting a label (docs/lattices.md)."""
EXACT_CEILING = replace(CEILING, changes={**EXACT_LOSS.changes, "objective": "gold"}, title="gold labels, small steps")
"""The ceiling of the exact loss: the same batches and steps."""
_WARM = Row(
    "exact loss",
    "warm-up",
    {**EXACT_LOSS.changes, "lr": 1e-3, "schedule": "one-cycle", "weight_decay": 0.05, "warm_up": 2, "epochs": 6},
    title="exact loss after a warm-up",
)
_WARM_CEILING = replace(
    CEILING,
    changes={**_WARM.changes, "objective": "gold", "warm_up": 0, "epochs": 8},
    title="gold labels, as many epochs as with a warm-up",
)
PER_SAMPLE = 100
"""Candidates drawn for each sample of a long task; the paper does not say how many it draws."""
_DATA = {"mnist": "MNIST", "cifar10": "CIFAR-10"}


def _sums(slots: int, data: str, size: str, samples: int, **changes: Any) -> Column:
    """A task of sums; Scallop uses the three most probable proofs."""
    base = RunConfig(data=data, slots=slots, samples=samples, **changes)
    return Column(f"{_DATA[data]} SUM-{slots}, {size}", base, {"scallop": {"k": 3}})


# With 100 samples, measuring takes longer than training, so it is done every 25 epochs. Scallop uses all proofs of
# SUM-3, as in the paper. In two cases it uses the ten best proofs: for SUM-4, because the circuits of all proofs are
# too large, and after random pruning, because the circuits would have to be compiled again in every step.
_SUM_3 = replace(
    _sums(3, "mnist", "n=100", 100, evaluate_every=25),
    options={"scallop": {"k": None}, "scallop + random": {"k": 10}},
)
_SUM_4 = replace(_sums(4, "mnist", "n=100", 100, evaluate_every=25), options={"scallop": {"k": 10}})
_MNIST_SUMS = (_SUM_3, _SUM_4, _sums(3, "mnist", "all", 20_000), _sums(4, "mnist", "all", 15_000))
_CIFAR_SUMS = (
    _sums(3, "cifar10", "n=10K", 10_000),
    _sums(4, "cifar10", "n=10K", 10_000),
    _sums(3, "cifar10", "all", 16_666),
    _sums(4, "cifar10", "all", 12_500),
)
_FINE_TUNED: dict[str, Any] = {
    "network": "CifarMobileNetV2", "epochs": 4, "batch": 16, "lr": 2e-4, "weight_decay": 0.05, "schedule": "one-cycle",
    "augment": "flip-shift", "evaluate_every": 4,
}  # fmt: skip
"""Settings chosen on seed 0 of SUM-3, by the accuracy on training images that are in no sample."""
_FINE_TUNED_ROWS = (
    Row("CifarMobileNetV2", "joint", {**_FINE_TUNED, "objective": "joint", "encoder": FROZEN, "metric": "cosine"}),
    Row("CifarMobileNetV2", "gold", {**_FINE_TUNED, "objective": "gold"}),
)
SUM_TABLE = Table(
    "sum",
    "Table 1: accuracy on SUM-M",
    (
        *rows_of(["semantic", "dolphin"], [*USUAL, "joint"]),
        *rows_of(["ised", "scallop"]),
        *rows_of(["abl-sim"], ["none"]),
        CEILING,
        *_FINE_TUNED_ROWS,
    ),
    (*_MNIST_SUMS, *_CIFAR_SUMS),
    more={  # more seeds where ten decide nothing, fewer where runs are slow
        **{
            (row.name, column.name): 40
            for row in rows_of(["dolphin"], ["none", "frozen", "trainable", "exact", "random"])
            for column in (_SUM_3, _SUM_4)
        },
        **{(row.name, _SUM_3.name): 20 for row in rows_of(["scallop"], ["none", "frozen", "trainable", "exact"])},
        **{(row.name, column.name): 3 for row in _FINE_TUNED_ROWS for column in _CIFAR_SUMS},
    },
    absent=frozenset((row.name, column.name) for row in _FINE_TUNED_ROWS for column in _MNIST_SUMS),
    remark="Scallop uses all proofs on SUM-3 with 100 samples, except in the row with random pruning. There, and on "
    "SUM-4 with 100 samples, it uses the ten most probable ones, and elsewhere the three most probable ones, because "
    "all proofs are too many to compile; the cell says how many. ISED draws 100 label combinations from the "
    "classifier. The paper prunes these draws. Here all candidates of a sample are pruned, and draws that are not "
    "among the kept ones are ignored. Frozen encoders are MobileNetV2; the paper has ResNet-18. The rows "
    "CifarMobileNetV2 fine-tune a network that was pretrained on ImageNet, where the paper's learner begins with "
    "random weights, and train for 4 epochs in batches of 16 (the paper: 50 in batches of 64); their joint inference "
    "finds neighbours by the same network, before it is fine-tuned.",
)


def _long(data: str, images: int, rule: str, slots: int) -> Column:
    base = RunConfig(data=data, rule=rule, slots=slots, samples=images // slots, per_sample=PER_SAMPLE)
    return Column(f"{_DATA[data]} {rule.upper()}-{slots}", base)


_LONG = (
    *(_long("mnist", 60_000, rule, slots) for rule in ("sum", "max") for slots in (30, 40)),
    *(_long("cifar10", 50_000, rule, slots) for rule in ("sum", "max") for slots in (15, 30)),
)
SCALE_TABLE = Table(
    "scale",
    "Table 2: accuracy on long SUM-M and MAX-M",
    (*rows_of(["dolphin"]), *rows_of(["abl-sim"], ["none"]), EXACT_LOSS, _WARM, CEILING, EXACT_CEILING, _WARM_CEILING),
    _LONG,
    seeds=3,
    absent=frozenset(
        (row.name, column.name) for row in (_WARM, _WARM_CEILING) for column in _LONG if "MNIST SUM" not in column.name
    ),
    notes={
        "warm-up": "two epochs on the images whose digit follows from all sums by least squares over groups of similar "
        "images; then six of the exact loss",
    },
    remark="Frozen encoders are MobileNetV2; the paper has ResNet-18. In the paper, ABLSim ran out of time on all of "
    "these tasks. Here, Dolphin and ABLSim train on 100 "
    "candidates of each sample, drawn once; the gold labels are hardly ever among them. The table of draws tries other "
    "readings of the paper.",
)


def _formulas(name: str, slots: int, samples: int, **changes: Any) -> Column:
    return Column(name, RunConfig(data="hwf", rule="hwf", slots=slots, samples=samples, **changes))


_SAMPLED: dict[str, Any] = {"per_sample": PER_SAMPLE, "batch": 16, "lr": 1e-4}
HWF_TABLE = Table(
    "hwf",
    "Table 3: accuracy on HWF-M",
    (
        *rows_of(["dolphin"]),
        EXACT_LOSS,
        Row("semantic", "joint", {"engine": "semantic", **VARIANTS["joint"], "per_sample": 0}),  # needs all candidates
        CEILING,
        EXACT_CEILING,
    ),
    # As many formulas as HWF has of length 7; the paper does not say how many it uses.
    tuple(_formulas(f"HWF-{slots}", slots, 6_000, **_SAMPLED) for slots in (7, 15)),
    seeds=3,
    absent=frozenset({("semantic + joint", "HWF-15")}),  # too many candidates to list
)


def _clips(samples: int) -> Column:
    """Few epochs, so that the table takes an hour; 16 clips per step, because frames of three have few neighbours."""
    base = RunConfig(rule="align", data="clips", slots=32, samples=samples, epochs=8, batch=16, evaluate_every=8)
    return Column(f"n={samples}", base, {"scallop": {"k": 3}})


def _clips_as_published(samples: int) -> Column:
    """The paper's three clips per step, its learning rate and its epochs."""
    column = _clips(samples)
    return replace(
        column, name=f"as published, {samples} clips", base=replace(column.base, batch=3, lr=1e-4, epochs=50)
    )


def _clip_rows(engine: str) -> list[Row]:
    joint = Row(engine, "joint", {"engine": engine, **VARIANTS["joint"], "encoder": "middle"})
    return [*rows_of([engine], ["none", "trainable", "exact", "random"]), joint]


# The paper does not say among how many texts or videos it chooses. Its figures are one run each, on MUGEN's own videos.
MUGEN_TABLE = Table(
    "mugen",
    "Table 4: aligning drawn clips with texts (MUGEN)",
    (*_clip_rows("semantic"), *_clip_rows("dolphin"), *_clip_rows("scallop"), CEILING),
    (_clips(500), _clips(250), _clips_as_published(500), _clips_as_published(250)),
    ("accuracy", "vtr3", "tvr3", "vtr10", "tvr10", "retained", "gold"),
    seeds=3,
    remark="The paper's figures are one run each on MUGEN's own videos, and cannot be compared with those on drawn "
    "clips; its gains can only be compared with caution. Runs take 8 epochs in batches of 16 with a learning rate of "
    "1e-3 (the paper: 50, 3 and 1e-4) where the column does not say otherwise. The paper does not say among how many "
    "videos or texts it chooses. Alignments exclude one another, so Dolphin's loss equals the semantic loss here, and "
    "its rows repeat those of *semantic*. Scallop has the best three proofs here, and all "
    "in the paper. The control *random* forbids labels at random, as many as possible if each clip is to keep as many "
    "alignments as with *exact*.",
)


def _scenes(data: str, names: int, samples: int) -> Column:
    """On 1,000 samples, the paper takes about 100 small steps, in batches of 512. Here a run takes 480 larger steps."""
    base = RunConfig(rule="vqar", data=data, slots=3, names=names, samples=samples, epochs=30, evaluate_every=10)
    return Column(f"{'VQAR' if data == 'vqar' else 'generated scenes'}, {names} names, n={samples:,}", base)


def _scene_rows(engine: str) -> list[Row]:
    """Rows with a frozen encoder, so that all rows that prune use the same edges."""
    frozen = {"engine": engine, "encoder": "features", "when": "once"}
    pruned = [Row(engine, name, {**frozen, "objective": name}) for name in ("paper", "exact", "joint", "random")]
    return [*rows_of([engine], ["none"]), *pruned]


_NEAR = "neighbours by features and boxes, in the whole pool, before training"
VQAR_TABLE = Table(
    "vqar",
    "Table 6: name and relation accuracy on VQAR, or on generated scenes in its form",
    (*_scene_rows("semantic"), *_scene_rows("scallop"), CEILING),
    tuple(_scenes(data, *size) for data in ("vqar", "scenes") for size in ((50, 1_000), (100, 1_000), (100, 5_000))),
    ("accuracy", "name", "rel", "retained", "gold"),
    seeds=3,
    notes={
        "paper": f"the paper's program as printed, {_NEAR}",
        "exact": f"the problem that the paper states, {_NEAR}",
        "joint": f"joint inference over the whole pool, {_NEAR}",
        "gold": "the ceiling: trained on the gold labels of the same objects and pairs",
    },
    remark="The paper's figures are one run each, on VQAR's own scenes, and cannot be compared with generated ones. "
    "Runs take 30 epochs in batches of 64 (the paper: 50 in batches of 512).",
)
# The paper's two encoders, and those whose weights come with a package, or that need none.
_ENCODERS = ("resnet18", "resnet152", "mobilenet-v2", "efficientnet-lite0", "pixels", "outlines")


def _encoder_rows(engine: str) -> list[Row]:
    frozen = [Row(engine, name, {"engine": engine, "objective": "paper", "encoder": name}) for name in _ENCODERS]
    return [*rows_of([engine], ["none"]), *frozen, *rows_of([engine], ["trainable", "exact", "random"])]


ABLATION_TABLE = Table(
    "ablation",
    "Tables 5 and 8: encoders and batch sizes, MNIST SUM-3, n=100",
    (*_encoder_rows("dolphin"), *_encoder_rows("scallop")),
    tuple(Column(f"batch {size}", replace(_SUM_3.base, batch=size), _SUM_3.options) for size in (32, 64, 128)),
    ("accuracy", "retained", "gold"),
    more={(row, "batch 32"): 40 for row in ("scallop", "scallop + trainable")},  # ten were too few to decide
    remark="In the paper's Table 8 (Scallop) the rows ResNet-152 and trainable look exchanged at batch 32: accuracy, "
    "candidates and gold labels kept are within 0.2 points of those of the other row in Table 5. The figures here are "
    "as printed. "
    "`clipper bench train` measures the time that pruning takes. Compare rows with equally many seeds only.",
)


def _thousand(rule: str, slots: int) -> Column:
    base = RunConfig(data="mnist", rule=rule, slots=slots, samples=1_000, evaluate_every=25)
    return Column(f"MNIST {rule.upper()}-{slots}, n=1,000", base)


# Few epochs of many small steps. Longer formulas get smaller steps, like long sums under the exact loss.
_LONGEST = _formulas("HWF-15, n=1,000", 15, 1_000, epochs=6, batch=8, lr=3e-4, evaluate_every=3)
JOINT_TABLE = Table(
    "joint",
    "Beyond the paper: joint inference over the pool",
    (*rows_of(["semantic"], ["none", "joint", "shuffled"]), CEILING),
    (
        replace(_SUM_3, options={}),
        replace(_SUM_4, options={}),
        _thousand("sum", 3),
        _thousand("max", 3),
        _thousand("max", 4),
        _formulas("HWF-7, n=1,000", 7, 1_000, epochs=6, batch=16, lr=1e-3, evaluate_every=3),
        _LONGEST,
    ),
    absent=frozenset({("semantic + joint", _LONGEST.name), ("semantic + shuffled", _LONGEST.name)}),  # too large
    remark="Runs on handwritten formulas take 6 epochs with a learning rate of 1e-3 (HWF-7) or 3e-4 (HWF-15; the "
    "paper: 50 and 1e-4).",
)


def _confound(title: str, variant: str, **changes: Any) -> Row:
    return Row("semantic", variant, {"engine": "semantic", "objective": variant, **changes}, title=title)


_POOL: dict[str, Any] = {"encoder": "outlines", "when": "once"}
_LINEAR: dict[str, Any] = {
    "network": "LinearOnOutlines", "restarts": 8, "batch": 16, "lr": 1e-2, "epochs": 100, "evaluate_every": 50,
}  # fmt: skip
"""Chosen on seeds 0 and 1 of SUM-3. Without much weight decay the layer memorises 100 samples, but hardly 1,000."""
CONFOUNDS_TABLE = Table(
    "confounds",
    "From the paper's pruning to joint inference, one change at a time",
    (
        _confound("all candidates", "none"),
        _confound("paper: own layer, batch, k=1", "paper", encoder="trainable"),
        *(
            _confound(f"{objective}: outlines, pool, k={k}", objective, **_POOL, k=k)
            for objective in ("paper", "exact")
            for k in (1, 8)
        ),
        _confound("linear layer on outlines, best of 8", "none", **_LINEAR),
        _confound("the same, weight decay 1", "none", **_LINEAR, weight_decay=1.0),
        _confound("EM: outlines, pool, k=8", "em", encoder="outlines"),
        _confound("joint: outlines, pool, k=8", "joint", encoder="outlines"),
        CEILING,
    ),
    (JOINT_TABLE.columns[0], *JOINT_TABLE.columns[2:6]),
    ("accuracy", "retained", "gold"),
    notes={
        "paper": "the paper's program as printed: by the classifier's own layer in each batch, or by outlines in the "
        "pool, once",
        "exact": "the problem that the paper states, in the same two ways",
        "none": "all candidates; also for a linear layer on outlines, where the best of eight starts by training loss "
        "counts",
    },
    remark="All rows train with the semantic loss on the same samples. Those of the linear layer take 100 epochs in "
    "batches of 16; on HWF-7, the others take 6 epochs in batches of 16, elsewhere 50 in batches of 64.",
)
_READINGS = {"with gold": "gold", "fixed": "fixed", "fresh": "fresh", "own": "own"}
_DRAWN = ("none", "frozen", "trainable")


def _ten_epochs(column: Column) -> Column:
    return replace(column, base=replace(column.base, epochs=10, evaluate_every=5))


DRAWS_TABLE = Table(
    "draws",
    'Tables 2 and 3 by four readings of "randomly sampling the pre-images"',
    (
        *(
            Row(reading, variant, {"engine": "dolphin", "draws": draws, **VARIANTS[variant]})
            for reading, draws in _READINGS.items()
            for variant in _DRAWN
        ),
        CEILING,
        *(Row("paper", variant, {}, source="the paper's Tables 2 and 3") for variant in _DRAWN),
    ),
    tuple(map(_ten_epochs, (*SCALE_TABLE.columns[:4], *HWF_TABLE.columns))),
    ("accuracy", "retained", "gold", "drawn"),
    seeds=1,
    more={
        (row, SCALE_TABLE.columns[0].name): 3
        for row in ("gold labels", *(Row(reading, variant, {}).name for reading in _READINGS for variant in _DRAWN))
    },
    notes={
        "with gold": "100 candidates of each sample, drawn once, with the gold labels among them, which a learner "
        "cannot know",
        "fixed": "100 candidates of each sample, drawn once",
        "fresh": "100 candidates of each sample, drawn again for each step",
        "own": "100 draws from the classifier's distribution over the candidates, again for each step",
    },
    remark="Pre-image is the paper's word for candidate. All rows train with Dolphin's loss, and the row *gold labels* "
    "on the gold labels, for ten epochs unless a cell says "
    'otherwise. The paper trains by "randomly sampling the pre-images", and says elsewhere that each sample includes '
    "the gold one by construction. Frozen encoders are MobileNetV2; the paper has ResNet-18.",
)
_RADII = (0.9, 1.1, 1.3, 1.5, 1.7)
"""From the nearest quarter of nearest neighbours to nearly all of them, on seeds 0 and 1."""
_BEST_K, _BEST_RADIUS = 2, 1.3
"""Those with the best accuracy on seeds 100 to 109; the other seeds of their rows played no part in the choice."""


def _by_number(objective: str, k: int) -> Row:
    return Row("dolphin", objective, {"engine": "dolphin", "objective": objective, "k": k}, title=f"{objective}, k={k}")


def _by_threshold(objective: str, radius: float) -> Row:
    changes = {"engine": "dolphin", "objective": objective, "radius": radius, "encoder": "outlines"}
    return Row("dolphin", objective, changes, title=f"{objective}, outlines, θ={radius:g}")


_CHOSEN = (
    *(_by_number(objective, _BEST_K) for objective in ("paper", "exact")),
    *(_by_threshold(objective, _BEST_RADIUS) for objective in ("paper", "exact", "random")),
)
NEIGHBOURS_TABLE = Table(
    "neighbours",
    "How many neighbours, or how near: MNIST SUM-3, n=100",
    (
        Row("dolphin", "none", {"engine": "dolphin", "objective": "none"}, title="all candidates"),
        *(_by_number(objective, k) for objective in ("paper", "exact") for k in (1, 2, 3, 5, 8)),
        *(_by_threshold(objective, radius) for objective in ("paper", "exact") for radius in _RADII),
        _by_threshold("random", _BEST_RADIUS),
    ),
    (replace(_SUM_3, options={}),),
    ("accuracy", "retained", "gold"),
    more={(row.name, _SUM_3.name): 40 for row in _CHOSEN},
    notes={
        "paper": "the paper's program as printed, by the k nearest neighbours in the batch, by the classifier's own "
        "layer; or by all neighbours in the batch nearer than θ, by outlines",
        "exact": "the problem that the paper states, in the same two ways",
        "random": "the control: as many discarded at random as by *exact* with the same neighbours",
    },
    remark="The best k and the best θ of the first ten seeds were run on 30 more, to see whether their gain holds: "
    "[what reproduces](../understand/paper.md#what-reproduces). Compare rows with equally many seeds only.",
)
_ENCODERS_COMPARED = (
    "untrained", "pixels", "mobilenet-v2", "efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2", "resnet50",
    "outlines", "trained",
)  # fmt: skip
ENCODERS_TABLE = Table(
    "encoders",
    "Encoders: what is near, what is kept, and what is learned, MNIST SUM-3, n=100",
    (
        _confound("all candidates", "none"),
        *(
            _confound(f"{encoder}, {objective}", objective, encoder=encoder, when="once")
            for encoder in _ENCODERS_COMPARED
            for objective in ("paper", "exact", "joint")
        ),
        CEILING,
    ),
    (replace(_SUM_3, options={}),),
    ("near", "retained", "gold", "accuracy"),
    seeds=3,
    notes={
        "paper": "the paper's program as printed, over the pool, before training; one neighbour",
        "exact": "the problem that the paper states, in the same way",
        "joint": "joint inference over the pool, before training; eight neighbours",
    },
    remark="All rows train with the semantic loss. The encoder *untrained* is the network's last but one layer with "
    "its initial weights. *trained* is that layer of a network which learned the gold labels of 1,000 other samples "
    "for ten epochs: a learner does not have it.",
)
