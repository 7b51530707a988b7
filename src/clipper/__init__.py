"""Clipper: train neural classifiers from logic instead of labels."""

from clipper.candidates import Candidates
from clipper.errors import ClipperError

__all__ = ["Candidates", "ClipperError"]
__version__ = "0.1.0"
