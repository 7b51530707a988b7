"""The rows that the tables share: every engine alone, with the paper's prunings, and with what it is compared to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clipper.benchmarks.tables.layout import Row

FROZEN = "mobilenet-v2"
"""The pretrained encoder of the rows "frozen"; the paper's ResNet-18 where a user has its weights."""
ENTROPY = 0.1
"""The weight of the entropy in the rows "entropy"."""

VARIANTS: dict[str, dict[str, Any]] = {
    "none": {"objective": "none"},
    "frozen": {"objective": "paper", "encoder": FROZEN},
    "trainable": {"objective": "paper", "encoder": "trainable"},
    "exact": {"objective": "exact", "encoder": "trainable"},
    "random": {"objective": "random", "encoder": "trainable"},
    "entropy": {"objective": "none", "entropy": ENTROPY},
    "joint": {"objective": "joint", "encoder": "outlines"},
    "shuffled": {"objective": "joint", "encoder": "shuffled"},
}
"""What is done to the candidates: the first three are the paper's, random and entropy its reviewers'."""
FRESH = 10
"""The first seed of the rows "joint": nothing was settled on these."""
USUAL = tuple(variant for variant in VARIANTS if variant not in ("joint", "shuffled"))
"""Those that every engine is tried with."""
MEANING = {
    "none": "all candidates",
    "frozen": "the printed program, neighbours by a pretrained encoder",
    "trainable": "the printed program, neighbours by the classifier's own layer",
    "exact": "the stated problem, neighbours by the classifier's own layer",
    "random": "as many candidates discarded as by exact, at random; of clips: as many edges, to frames drawn at random",
    "entropy": f"all candidates, the posterior's entropy penalised with weight {ENTROPY:g}",
    "joint": "the whole pool decides before training, neighbours by the directions of outlines (of a clip: its "
    "frames' middle); of images on seeds from 10 on, because it was settled while looking at seeds 0 to 9 (joint.md)",
    "shuffled": "as joint, but each image has another one's embedding: it should abstain, and do no harm",
    "gold": "the ceiling: trained on the gold labels of the same images",
}


def rows_of(engines: Sequence[str], variants: Sequence[str] = USUAL) -> list[Row]:
    """Each engine with each variant.

    Examples:
        >>> [row.name for row in rows_of(["dolphin"], ["none", "exact"])]
        ['dolphin', 'dolphin + exact']
    """
    return [
        Row(engine, variant, {"engine": engine, **VARIANTS[variant]}, FRESH if variant == "joint" else 0)
        for engine in engines
        for variant in variants
    ]


EXACT_LOSS = Row(
    "exact loss", "none", {"engine": "semantic", "objective": "none", "per_sample": 0, "batch": 8, "lr": 3e-4}
)
"""Semantic loss over all candidates, however many. A long sum says little, so many small steps; small ones in length,
too, or a label may die out early and never come back (docs/lattices.md)."""
CEILING = Row("gold labels", "none", {"engine": "semantic", "objective": "gold"})
"""The same network, trained on the gold labels of the same images."""
