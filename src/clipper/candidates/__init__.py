"""What the labels could be: candidates, one by one or as a lattice, and the rules they come from."""

from clipper.candidates.alignment import Alignments
from clipper.candidates.beam import beam_search
from clipper.candidates.kinds import Kind
from clipper.candidates.lattice import Lattice
from clipper.candidates.listing import CandidateSet
from clipper.candidates.table import Candidates

__all__ = ["Alignments", "CandidateSet", "Candidates", "Kind", "Lattice", "beam_search"]
