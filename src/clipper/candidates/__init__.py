"""What the labels could be: candidates, and the rules they come from."""

from clipper.candidates.kinds import Kind
from clipper.candidates.table import Candidates

__all__ = ["Candidates", "Kind"]
