"""Candidates: the label combinations that are possible for each sample, listed, as a lattice or as a formula."""

from clipper.candidates.alignment import Alignments
from clipper.candidates.base import CandidateSet
from clipper.candidates.beam import beam_search
from clipper.candidates.formula import Formula
from clipper.candidates.kinds import Kind
from clipper.candidates.lattice import Lattice
from clipper.candidates.program import Program, Sentence
from clipper.candidates.propositions import Proposition, all_of, any_of, has_label
from clipper.candidates.table import Candidates

__all__ = [
    "Alignments", "CandidateSet", "Candidates", "Formula", "Kind", "Lattice", "Program", "Proposition", "Sentence",
    "all_of", "any_of", "beam_search", "has_label",
]  # fmt: skip
