"""What survives: exact and printed objectives, closed forms and solvers, and the random control."""

from clipper.pruning.clipper import Clipper
from clipper.pruning.lattice_result import LatticePruning
from clipper.pruning.objectives import prune
from clipper.pruning.result import Pruning, inside

__all__ = ["Clipper", "LatticePruning", "Pruning", "inside", "prune"]
