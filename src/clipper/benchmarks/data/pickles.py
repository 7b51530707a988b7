"""Arrays out of a pickle, without running what else may be in it.

A pickle names the functions to call. This reader knows three names, all of which build NumPy arrays, and refuses every
other; numbers, text and containers need no name.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np

from clipper.errors import FileError


def _empty_array(kind: type, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """What NumPy's `_reconstruct` does: an array that its state will fill."""
    del kind
    return np.ndarray.__new__(np.ndarray, shape, np.dtype(dtype))


_ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _empty_array,
    ("numpy._core.multiarray", "_reconstruct"): _empty_array,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ADMITTED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, and only arrays are read")
        return _ADMITTED[module, name]


def read_arrays(content: bytes, what: str) -> Any:
    """Unpickle arrays, numbers, text and containers of these; anything else is refused.

    Args:
        content: the pickle; one that Python 2 wrote may be read, too.
        what: its name, for error messages.

    Examples:
        >>> read_arrays(pickle.dumps({"labels": [6, 9]}), "a batch")
        {'labels': [6, 9]}
        >>> read_arrays(pickle.dumps(print), "a batch")
        Traceback (most recent call last):
        ...
        clipper.errors.FileError: a batch is not read: it asks for builtins.print, and only arrays are read
    """
    try:
        return _ArraysOnly(io.BytesIO(content), encoding="latin1").load()
    except pickle.UnpicklingError as error:
        raise FileError(f"{what} is not read: {error}") from error
    except Exception as error:  # a damaged pickle fails in any way it likes
        raise FileError(f"{what} is damaged or no pickle ({type(error).__name__}: {error}); fetch it again") from error
