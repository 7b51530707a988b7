"""Benchmarks, registered by name, and their data sets, runs and tables of results."""

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.registry import Benchmark, benchmark_named, register
from clipper.benchmarks.runs import run

__all__ = ["Benchmark", "RunConfig", "benchmark_named", "register", "run"]
