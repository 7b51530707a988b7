"""Pruning: discard candidates that contradict an instance's neighbours. Objectives, solvers and the random control."""

from clipper.pruning.clipper import Clipper
from clipper.pruning.joint import Calibration, Posterior, Trust, infer
from clipper.pruning.objectives import prune
from clipper.pruning.ranks import partition
from clipper.pruning.result import Pruning

__all__ = ["Calibration", "Clipper", "Posterior", "Pruning", "Trust", "infer", "partition", "prune"]
