"""Algorithm 1: train a classifier from what survives; any engine, any objective, any optimiser."""

from clipper.training.bank import MemoryBank
from clipper.training.iterated import Pass, train_iterated
from clipper.training.kinds import Classifiers, Encoders, Packing
from clipper.training.loop import Watch, train
from clipper.training.metrics import Figures, accuracy
from clipper.training.record import Record
from clipper.training.samples import Samples
from clipper.training.tensorboard import tensorboard
from clipper.training.trainer import Moment

__all__ = [
    "Classifiers", "Encoders", "Figures", "MemoryBank", "Moment", "Packing", "Pass", "Record", "Samples",
    "Watch", "accuracy", "tensorboard", "train", "train_iterated",
]  # fmt: skip
