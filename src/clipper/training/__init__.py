"""Training: Algorithm 1 of the paper, with any engine, any objective and any optimiser."""

from clipper.training.augmentation import Augmented, RandomAffine, RandomFlipShift
from clipper.training.inspection import Inspection, Inspector
from clipper.training.iterated import Pass, train_iterated
from clipper.training.kinds import Classifiers, Encoders, Packing
from clipper.training.loop import Callback, History, Progress, train
from clipper.training.memory_bank import MemoryBank
from clipper.training.metrics import EpochMetrics, Evaluator, accuracy
from clipper.training.record import Record
from clipper.training.samples import Samples, pad_collate
from clipper.training.schedule import Draws, PruningSchedule
from clipper.training.tensorboard import tensorboard

__all__ = [
    "Augmented",
    "Callback",
    "Classifiers",
    "Draws",
    "Encoders",
    "EpochMetrics",
    "Evaluator",
    "History",
    "Inspection",
    "Inspector",
    "MemoryBank",
    "Packing",
    "Pass",
    "Progress",
    "PruningSchedule",
    "RandomAffine",
    "RandomFlipShift",
    "Record",
    "Samples",
    "accuracy",
    "pad_collate",
    "tensorboard",
    "train",
    "train_iterated",
]  # fmt: skip
