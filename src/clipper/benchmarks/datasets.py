"""Labelled images by name; each data set is a file in `clipper.benchmarks.data`."""

from clipper.benchmarks.data.catalogue import NAMES, train_and_test
from clipper.benchmarks.data.cifar10 import cifar10
from clipper.benchmarks.data.digits import digits
from clipper.benchmarks.data.hwf import Formulas, formulas, hwf
from clipper.benchmarks.data.images import Images
from clipper.benchmarks.data.mnist import mnist
from clipper.benchmarks.data.sources import data_folders

__all__ = [
    "NAMES",
    "Formulas",
    "Images",
    "cifar10",
    "data_folders",
    "digits",
    "formulas",
    "hwf",
    "mnist",
    "train_and_test",
]
