"""Pickles: arrays come out, nothing is run."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from clipper.benchmarks.data.pickles import read_arrays
from clipper.errors import FileError
from tests.benchmarks.published import python2_batch


class Malicious:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch hacked",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_malicious_pickle_is_refused_and_not_run(
    protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileError, match=r"asks for \w+\.system"):
        read_arrays(pickle.dumps({"data": Malicious()}, protocol), "the batch")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("thing", [print, np.load, np.ctypeslib.as_array, Path(), np.float64, type])
def test_only_arrays_and_containers_are_unpickled(thing: object) -> None:
    with pytest.raises(FileError, match="only arrays"):
        read_arrays(pickle.dumps(thing), "the batch")


def test_arrays_come_out_of_pickles_old_and_new() -> None:
    array = np.arange(10, dtype=np.uint8).reshape(2, 5) + 200
    assert np.array_equal(read_arrays(pickle.dumps([array], 4), "new")[0], array)
    old = read_arrays(python2_batch(array, [3, 1]), "old")
    assert np.array_equal(old["data"], array)
    assert old["labels"] == [3, 1]


@pytest.mark.parametrize("length", [0, 1, 40, 120])
def test_a_truncated_pickle_is_an_error_with_its_name(length: int) -> None:
    with pytest.raises(FileError, match="the batch"):
        read_arrays(python2_batch(np.zeros((2, 5), np.uint8), [3, 1])[:length], "the batch")
