"""From what is known to labels: the front door."""

from clipper.labelling.decode import Decoded, decode
from clipper.labelling.identify import Identification, identify

__all__ = ["Decoded", "Identification", "decode", "identify"]
