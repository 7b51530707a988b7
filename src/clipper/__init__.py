"""Clipper: train neural classifiers from logic instead of labels.

The names below and the subpackages are imported on first use, so `import clipper` is instant.
"""

from typing import TYPE_CHECKING

__all__ = [
    "CandidateSet", "Candidates", "Clipper", "ClipperError", "Lattice", "Posterior", "ProximityGraph", "Pruning",
    "Trust", "WeakClassifier", "decode", "identify", "infer", "label", "prune",
]  # fmt: skip
__version__ = "0.2.0"

if TYPE_CHECKING:
    from clipper import candidates as candidates
    from clipper import engines as engines
    from clipper import errors as errors
    from clipper import integrations as integrations
    from clipper import labelling as labelling
    from clipper import proximity as proximity
    from clipper import pruning as pruning
    from clipper import rules as rules
    from clipper import training as training
    from clipper.candidates import Candidates, CandidateSet, Lattice
    from clipper.errors import ClipperError
    from clipper.labelling import WeakClassifier, decode, identify, label
    from clipper.proximity import ProximityGraph
    from clipper.pruning import Clipper, Posterior, Pruning, Trust, infer, prune
else:
    _MODULES = (
        "candidates", "engines", "errors", "integrations", "labelling", "proximity", "pruning", "rules", "training",
    )  # fmt: skip
    _MODULE_OF = {
        "CandidateSet": "candidates", "Candidates": "candidates", "Lattice": "candidates", "ClipperError": "errors",
        "ProximityGraph": "proximity", "Clipper": "pruning", "Posterior": "pruning", "Pruning": "pruning",
        "Trust": "pruning", "WeakClassifier": "labelling", "decode": "labelling", "identify": "labelling",
        "infer": "pruning", "label": "labelling", "prune": "pruning",
    }  # fmt: skip

    def __getattr__(name: str) -> object:
        """Import a public name or a subpackage on first use."""
        from importlib import import_module

        if name in _MODULES:
            return import_module(f"clipper.{name}")
        if name not in _MODULE_OF:
            raise AttributeError(f"module 'clipper' has no attribute {name!r}; it has {', '.join(__all__)}", name=name)
        globals()[name] = found = getattr(import_module(f"clipper.{_MODULE_OF[name]}"), name)
        return found

    def __dir__() -> list[str]:
        """All names, including those that are not imported yet."""
        return sorted({*globals(), *__all__, *_MODULES} - {"TYPE_CHECKING"})
