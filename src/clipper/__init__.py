"""Clipper: train neural classifiers from logic instead of labels."""

from clipper import engines
from clipper.candidates import Candidates, Lattice
from clipper.errors import ClipperError
from clipper.proximity import ProximityGraph
from clipper.pruning import Clipper, Posterior, Pruning, infer, prune

__all__ = [
    "Candidates", "Clipper", "ClipperError", "Lattice", "Posterior", "ProximityGraph", "Pruning", "engines", "infer",
    "prune",
]  # fmt: skip
__version__ = "0.1.0"
