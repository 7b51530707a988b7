"""Joint inference: the whole pool decides which candidates are probable, by belief propagation."""

from clipper.pruning.joint.calibration import Calibration
from clipper.pruning.joint.inference import infer
from clipper.pruning.joint.posterior import Posterior, Verdict
from clipper.pruning.joint.trust import Trust
from clipper.pruning.objectives import NEIGHBOURS

__all__ = ["NEIGHBOURS", "Calibration", "Posterior", "Trust", "Verdict", "infer"]
