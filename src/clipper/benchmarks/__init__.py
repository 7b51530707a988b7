"""Benchmarks: one file each, registered by name; the data sets, the runs and the tables that they make up."""

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.registry import Benchmark, benchmark_named, register
from clipper.benchmarks.runs import run

__all__ = ["Benchmark", "RunConfig", "benchmark_named", "register", "run"]
