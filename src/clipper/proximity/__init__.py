"""What is near: encoders, neighbour searches and the proximity graph."""

from clipper.proximity.approximate import FaissSearch
from clipper.proximity.backbones.preprocessing import Preprocessing
from clipper.proximity.backbones.pretrained import encoder_named, pretrained
from clipper.proximity.encoders import Encoder, Frozen, Outlines, Pixels, embed
from clipper.proximity.graph import ProximityGraph
from clipper.proximity.instances import Pool
from clipper.proximity.neighbours import ExactSearch, NeighbourSearch

__all__ = [
    "Encoder", "ExactSearch", "FaissSearch", "Frozen", "NeighbourSearch", "Outlines", "Pixels", "Pool", "Preprocessing",
    "ProximityGraph", "embed", "encoder_named", "pretrained",
]  # fmt: skip
