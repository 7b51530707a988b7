"""Tables on benchmarks from other papers, with published figures of other systems."""

from __future__ import annotations

from typing import Any

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.tables.layout import FRESH, Column, Row, Table

_ADD_EPOCHS: dict[str, dict[str, Any]] = {
    "LeNet": {"epochs": 40, "lr": 3e-3},
    "MnistCnn": {"epochs": 20, "lr": 4e-3, "weight_decay": 0.5, "restarts": 3, "trial": 1},
}
_ADD_VARIANTS: dict[str, dict[str, Any]] = {
    "none": {"objective": "none"},
    "joint": {"objective": "joint", "encoder": "outlines"},
    "gold": {"objective": "gold"},
    "augmented": {"objective": "none", "augment": "affine"},
    "augmented gold": {"objective": "gold", "augment": "affine"},
}


def _reported(source: str, *systems: str) -> list[Row]:
    """Rows of other systems, with the figures that a publication reports for them; nothing is run."""
    return [Row(system, "none", {}, source=source) for system in systems]


def _addition(digits: int) -> Column:
    """All training images, each once; a step sees about 240 of them."""
    base = RunConfig(
        rule="addition", data="mnist", slots=2 * digits, samples=30_000 // digits, batch=max(2, 120 // digits),
        weight_decay=0.05, schedule="one-cycle", evaluate_every=10,
    )  # fmt: skip
    return Column(f"MNIST-Add N={digits}", base)


ADDITION_TABLE = Table(
    "addition",
    "MNIST-Add: the sum of two numbers of N handwritten digits",
    (
        # The seeds from FRESH to 2 * FRESH - 1 were used to try other settings of MnistCnn.
        *(
            Row(network, variant, {"network": network, **_ADD_EPOCHS[network], **changes}, first_seed=first)
            for network, first in (("LeNet", FRESH), ("MnistCnn", 2 * FRESH))
            for variant, changes in _ADD_VARIANTS.items()
        ),
        *_reported("NeSyDM", "PLIA", "DeepSoftLog", "A-NeSI", "EXAL", "Scallop", "NeSyDM"),
    ),
    tuple(_addition(digits) for digits in (1, 2, 4, 15, 100)),
    ("sums", "likeliest", "accuracy"),
    notes={
        "none": "exact loss over all candidates, from the first step on",
        "joint": "joint inference over the whole pool before training, neighbours by outlines; then the exact loss",
        "augmented": "exact loss; images rotated by up to 10 degrees, shifted by up to 2 pixels, scaled by up to 10 %",
        "augmented gold": "gold labels, with the same augmentation",
    },
    remark="Sums are those of the most probable digits. MnistCnn is a larger network; it learns from the best of three "
    "starts, by training loss, on seeds from 200 on. Published figures: NeSyDM (arXiv 2505.13138), Table 1, which also "
    "reports the other systems; all of them train LeNet.",
)
FORMULAS_TABLE = Table(
    "formulas",
    "HWF as published: formulas of 1 to 7 symbols, with division",
    (
        Row("SymbolCnn", "none", {"objective": "none"}),
        Row("SymbolCnn", "gold", {"objective": "gold"}),
        *_reported("ABLkit", "ABL", "NGS"),
    ),
    tuple(
        Column(
            f"HWF 1 to 7, {name}",
            RunConfig(
                rule="formulas",
                data=data,
                slots=7,
                samples=10_000,
                epochs=8,
                batch=32,
                lr=2e-3,
                schedule="one-cycle",
                evaluate_every=4,
            ),
        )
        for name, data in (("published split", "published"), ("no image in both halves", "distinct"))
    ),
    ("accuracy", "formulas"),
    seeds=3,
    notes={"none": "exact loss over all candidates", "gold": "the ceiling: trained on the gold labels"},
    remark="Published figures: ABLkit's own table (examples/hwf, all lengths), of formulas whose value is right; that "
    "depends on all symbols.",
)


def _shortcuts(name: str, rule: str, slots: int, samples: int, **changes: Any) -> Column:
    """A task with as many samples as in rsbench, where rsbench states the number."""
    base: dict[str, Any] = {"data": "mnist", "network": "LeNet", "epochs": 12, "batch": 32, "lr": 3e-3}
    base |= {"weight_decay": 0.05, "schedule": "one-cycle", "evaluate_every": 6}
    return Column(name, RunConfig(rule=rule, slots=slots, samples=samples, **base | changes))


SHORTCUTS_TABLE = Table(
    "shortcuts",
    "Reasoning shortcuts (rsbench): labels, concepts, and the calibration of concepts",
    (
        Row("semantic", "none", {"objective": "none"}),
        Row("semantic", "mixture", {"objective": "mixture"}),
        Row("gold labels", "none", {"objective": "gold"}),
        *_reported("NeSyDM", "semantic loss", "BEARS", "NeSyDM"),
    ),
    (
        _shortcuts("MNIST-Half", "mnist-half", 2, 2_940),
        _shortcuts("MNIST-Even-Odd", "mnist-even-odd", 2, 6_720),
        _shortcuts("MNMath", "mnmath", 4, 2_000),
        _shortcuts("MNLogic", "mnlogic", 4, 2_000),
        _shortcuts("Kand-Logic", "kand-logic", 18, 500, data="primitives", network="auto", epochs=6),
    ),
    ("labels", "accuracy", "ece", "identified", "unseen", "shortcuts", "namings", "joint"),
    seeds=3,
    notes={
        "none": "exact loss over all candidates",
        "mixture": "joint inference finds the groups; the network trains on one naming, and predicts with all that fit",
        "gold": "the ceiling: trained on the gold labels",
    },
    remark="Accuracy is that of concepts. Shortcuts are wrong maps of the concepts that satisfy all formulas; namings "
    "are the one-to-one maps that do, the right one included. Published figures: NeSyDM (arXiv 2505.13138), Table 3.",
)
_BAGS = {"musk1": ("MUSK1", 92, 40), "musk2": ("MUSK2", 102, 1_044), "elephant": ("Elephant", 200, 13)}
BAGS_TABLE = Table(
    "bags",
    "Multiple-instance learning: is at least one instance of a bag positive?",
    (
        Row("BagMlp", "none", {"objective": "none"}),
        *_reported("Attention MIL", "mi-SVM", "MI-SVM", "EM-DD", "mi-Graph", "mi-Net", "Attention"),
    ),
    tuple(
        Column(
            name,
            RunConfig(
                rule="bags",
                data=data,
                slots=longest,
                samples=bags,
                epochs=50,
                batch=8,
                weight_decay=0.1,
                schedule="one-cycle",
                evaluate_every=50,
            ),
        )
        for data, (name, bags, longest) in _BAGS.items()
    ),
    ("accuracy",),
    seeds=10,
    notes={"none": "exact loss over all candidates of a bag; standardised features, a hidden layer of 256"},
    remark="Ten-fold cross-validation: each seed holds out one fold, so the deviation is that between folds. "
    "Published figures: Attention MIL (Ilse et al. 2018, arXiv 1802.04712), Table 1, which also reports the other "
    "systems; their deviations are those of means over ten folds.",
)
_BAG_EPOCHS = {8: 20, 16: 30, 32: 50, 64: 100}
"""Epochs by the size of bags: larger bags are fewer, so an epoch has fewer steps."""


def _proportions(data: str, slots: int) -> Column:
    """All training instances, each in one bag."""
    common: dict[str, Any] = {"data": data, "slots": slots, "lr": 3e-3, "schedule": "one-cycle", "evaluate_every": 100}
    if data == "digits":
        base = RunConfig(rule="counts", samples=1_198 // slots, epochs=_BAG_EPOCHS[slots], batch=10, **common)
        return Column(f"digits, bags of {slots}", base)
    base = RunConfig(rule="proportions", samples=380 // slots, epochs=50, batch=2, **common)
    return Column(f"breast cancer, bags of {slots}", base)


_BAG_SIZES = tuple(_BAG_EPOCHS)
PROPORTIONS_TABLE = Table(
    "proportions",
    "Learning from label proportions: how often each class comes in a bag",
    (
        Row("bags", "none", {"rule": "proportions", "objective": "none", "batch": 2}),
        Row("classes", "none", {"rule": "counts", "objective": "none"}, title="class by class"),
        Row("gold labels", "gold", {"objective": "gold"}, title="gold labels"),
    ),
    tuple(_proportions(data, slots) for data in ("digits", "breast-cancer") for slots in _BAG_SIZES),
    seeds=5,
    absent=frozenset(
        # The exact likelihood of such a bag needs too many states.
        {("bags", f"digits, bags of {slots}") for slots in (32, 64)}
        # With two classes, the count of one gives that of the other.
        | {("class by class", f"breast cancer, bags of {slots}") for slots in _BAG_SIZES}
    ),
    notes={"none": "all candidates: by the exact likelihood of a bag, or class by class"},
)
_SUDOKU: dict[int, dict[str, Any]] = {
    4: {"slots": 16, "epochs": 15, "batch": 8, "lr": 3e-3, "schedule": "one-cycle"},
    9: {"slots": 81, "epochs": 8, "batch": 9, "lr": 1e-3},
}
SUDOKU_TABLE = Table(
    "sudoku",
    "Visual Sudoku: is this board of handwritten digits right?",
    (
        *(Row("LeNet", variant, {"network": "LeNet", "objective": variant}) for variant in ("none", "gold")),
        *_reported("Morra et al.", "NeuPSL", "LTN"),
    ),
    tuple(
        Column(
            f"MNIST {size} × {size}, 100 right and 100 wrong boards",
            RunConfig(rule="sudoku", data="mnist", samples=200, evaluate_every=15, **changes),
        )
        for size, changes in _SUDOKU.items()
    ),
    ("auroc", "boards", "cells", "accuracy"),
    seeds=3,
    notes={
        "none": "exact loss: for 4 × 4, on whole boards, right and wrong; for 9 × 9, on the rows, columns and boxes of "
        "right boards",
    },
    remark="The first row of the first right board, four or nine known cells, gives the labels their names. Published "
    "figures: Morra et al. 2023 (CEUR-WS 3432, paper 19), which also reports NeuPSL: the area under the ROC curve, ten "
    "splits.",
)
LONG_SUM_TABLE = Table(
    "long-sum",
    "SUM-1024: the sum of 1,024 handwritten digits",
    (
        *(Row("LeNet", variant, {"network": "LeNet", "objective": variant}) for variant in ("none", "gold")),
        *_reported("CTSketch", "CTSketch"),
    ),
    (
        Column(
            "MNIST SUM-1024, 5,000 sums",
            RunConfig(
                rule="long-sum",
                data="mnist",
                slots=1_024,
                samples=5_000,
                epochs=3,
                batch=128,
                lr=3e-3,
                schedule="one-cycle",
                evaluate_every=3,
            ),
        ),
    ),
    ("accuracy",),
    seeds=3,
    notes={
        "none": "least squares over all sums gives the mean label of each group of images with similar outlines; the "
        "network trains on the digits on which three groupings agree",
        "gold": "trained on the gold labels of the same images",
    },
    remark="Published figure: CTSketch (arXiv 2503.24123), 5,000 sums, in which each image occurs about 85 times.",
)
