"""Joint inference: belief propagation over the whole pool finds which candidates are probable."""

from clipper.pruning.joint.inference import infer
from clipper.pruning.joint.posterior import Calibration, Posterior, Verdict
from clipper.pruning.joint.potential import Trust
from clipper.pruning.joint.settings import InferenceSettings
from clipper.pruning.objectives import NEIGHBOURS

__all__ = ["NEIGHBOURS", "Calibration", "InferenceSettings", "Posterior", "Trust", "Verdict", "infer"]
