"""From what is known to labels: the front door."""

from clipper.labelling.decode import Decoded, decode
from clipper.labelling.identify import Identification, identify
from clipper.labelling.label import Labels, label

__all__ = ["Decoded", "Identification", "Labels", "decode", "identify", "label"]
