"""What the labels could be: candidates, one by one or as a lattice, and the rules they come from."""

from clipper.candidates.beam import beam_search
from clipper.candidates.kinds import Kind
from clipper.candidates.lattice import Lattice
from clipper.candidates.listing import CandidateSet
from clipper.candidates.program import Program
from clipper.candidates.programs.wording import Sentence
from clipper.candidates.table import Candidates

__all__ = ["CandidateSet", "Candidates", "Kind", "Lattice", "Program", "Sentence", "beam_search"]
