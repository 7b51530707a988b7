"""Which instances are similar: encoders, nearest-neighbour search and the proximity graph."""

from clipper.proximity.backbones.preprocessing import Preprocessing
from clipper.proximity.backbones.pretrained import encoder_named, pretrained
from clipper.proximity.encoders import Encoder, Frozen, Outlines, Pixels, embed
from clipper.proximity.graph import ProximityGraph
from clipper.proximity.index import Index, IndexedSearch, build, search
from clipper.proximity.instances import Pool
from clipper.proximity.neighbours import ExactSearch, Neighbours, NeighbourSearch, SearchReport

__all__ = [
    "Encoder", "ExactSearch", "Frozen", "Index", "IndexedSearch", "NeighbourSearch", "Neighbours", "Outlines", "Pixels",
    "Pool", "Preprocessing", "ProximityGraph", "SearchReport", "build", "embed", "encoder_named", "pretrained",
    "search",
]  # fmt: skip
