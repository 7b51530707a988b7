"""From what is known to labels: the front door."""

from clipper.labelling.decode import Decoded, decode

__all__ = ["Decoded", "decode"]
