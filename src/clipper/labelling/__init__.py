"""The front door: from formulas, and what is near, to labels."""

from clipper.labelling.identify import Identification, identify

__all__ = ["Identification", "identify"]
