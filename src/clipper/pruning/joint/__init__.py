"""Joint inference: the whole pool decides which candidates are probable, by belief propagation."""

from clipper.pruning.joint.calibration import Calibration
from clipper.pruning.joint.inference import NEIGHBOURS, infer
from clipper.pruning.joint.posterior import Posterior, Verdict
from clipper.pruning.joint.trust import Trust

__all__ = ["NEIGHBOURS", "Calibration", "Posterior", "Trust", "Verdict", "infer"]
