"""Engines: loss functions that train a classifier on candidates, one loss for each sample."""

from clipper.engines.abl import AblSim
from clipper.engines.base import Context, Engine
from clipper.engines.dolphin import DolphinLoss
from clipper.engines.ised import IsedLoss
from clipper.engines.scallop import ScallopLoss
from clipper.engines.semantic import SampledSemanticLoss, SemanticLoss

__all__ = [
    "AblSim",
    "Context",
    "DolphinLoss",
    "Engine",
    "IsedLoss",
    "SampledSemanticLoss",
    "ScallopLoss",
    "SemanticLoss",
]
