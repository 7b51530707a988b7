"""Labels from facts about samples: `label`, `identify`, `decode`, `WeakClassifier`."""

from typing import TYPE_CHECKING

from clipper.labelling.decode import Decoded, decode
from clipper.labelling.identify import Identification, identify
from clipper.labelling.label import Labels, label
from clipper.labelling.namings import NamedPool, NamingMixture, name_pool

if TYPE_CHECKING:
    from clipper.labelling.weak_classifier import WeakClassifier

__all__ = [
    "Decoded",
    "Identification",
    "Labels",
    "NamedPool",
    "NamingMixture",
    "WeakClassifier",
    "decode",
    "identify",
    "label",
    "name_pool",
]


def __getattr__(name: str) -> object:
    """Import what needs scikit-learn when it is first asked for."""
    if name != "WeakClassifier":
        raise AttributeError(f"module 'clipper.labelling' has no attribute {name!r}", name=name)
    from clipper.labelling.weak_classifier import WeakClassifier

    return WeakClassifier
