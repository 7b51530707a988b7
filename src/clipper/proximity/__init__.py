"""What is near: neighbour searches and the proximity graph."""

from clipper.proximity.approximate import FaissSearch
from clipper.proximity.graph import ProximityGraph
from clipper.proximity.instances import Pool
from clipper.proximity.neighbours import ExactSearch, NeighbourSearch

__all__ = ["ExactSearch", "FaissSearch", "NeighbourSearch", "Pool", "ProximityGraph"]
