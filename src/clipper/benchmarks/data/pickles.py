"""Arrays from an untrusted pickle.

A pickle is a program: it can call any function by name. `read_arrays` calls nothing. It interprets only the opcodes
that build numbers, text, lists, tuples, dictionaries and NumPy arrays, and refuses all others. Arrays are built after
the last opcode, and only if their type is a plain number and the number of bytes fits the shape.
"""

from __future__ import annotations

import math
import pickletools
from dataclasses import dataclass
from typing import Any

import numpy as np

from clipper.errors import FileError

_PLAIN = {"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"}
"""The types of arrays that are read, without their byte order."""
_OBJECTS = {"O", "O4", "O8"}
"""An array of Python objects is read as the list that a pickle holds in its place."""
_DEEPEST = 32
"""The most levels of nested containers; VQAR's scene graphs have four."""
_DIMENSIONS = 32
"""The most dimensions of an array."""
_SHARED = 10
"""The most values per byte of the pickle. More means that it repeats a value to fill the memory."""
_WIDEST = 64
"""Whole numbers must have fewer bits than this."""


class _RefusedError(Exception):
    """A pickle asks for something that is refused."""


@dataclass(frozen=True)
class _Name:
    """The name of a function or class. It is only compared, never imported."""

    name: str


@dataclass
class _Type:
    """The type of an array's numbers: a code such as "f4", and the byte order."""

    code: str
    order: str = "="


@dataclass
class _Array:
    """The description of an array in a pickle."""

    type: _Type | None = None
    shape: tuple[int, ...] = ()
    content: Any = None
    fortran: bool = False
    made: np.ndarray | None = None


_RECONSTRUCT = {f"numpy.{core}.multiarray._reconstruct" for core in ("core", "_core")}
_FROM_BUFFER = {f"numpy.{core}.numeric._frombuffer" for core in ("core", "_core")}
_BYTES = {"__builtin__.bytes", "builtins.bytes"}
_ADMITTED = {"numpy.ndarray", "numpy.dtype", "_codecs.encode", *_RECONSTRUCT, *_FROM_BUFFER, *_BYTES}
"""The names that pickles of arrays and bytes use, in all protocols."""

_VALUES = {
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING",
    "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES",
    "BINBYTES8", "BYTEARRAY8",
}  # fmt: skip
"""Opcodes that push their argument."""
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}


def read_arrays(content: bytes, what: str) -> Any:
    """The arrays, numbers, text and containers in a pickle; anything else is refused, and no function is called.

    Args:
        content: the pickle, of any protocol; Python 2 may have written it.
        what: its name, for error messages.

    Returns:
        Lists, tuples and dictionaries of numbers, text, bytes and NumPy arrays of plain numbers. An array of objects
        comes as a list, and as the object itself if it has no dimension.

    Raises:
        FileError: the pickle is damaged, or holds more than that.

    Examples:
        >>> import pickle
        >>> read_arrays(pickle.dumps({"labels": [6, 9]}), "a batch")
        {'labels': [6, 9]}
        >>> read_arrays(pickle.dumps(print), "a batch")
        Traceback (most recent call last):
        ...
        clipper.errors.FileError: a batch is not read: it asks for builtins.print, and only arrays are read
    """
    try:
        return _Finished(_SHARED * len(content)).value(_Machine().run(content), 0)
    except _RefusedError as error:
        raise FileError(f"{what} is not read: {error}") from error
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError) as error:
        raise FileError(f"{what} is damaged or no pickle ({type(error).__name__}: {error}); fetch it again") from error


class _Machine:
    """Interprets the opcodes, with a stack, a list of the stacks below each mark, and a memo."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []
        self.memo: dict[int, Any] = {}

    def run(self, content: bytes) -> Any:
        """The value of the pickle."""
        for opcode, argument, _ in pickletools.genops(content):
            self.step(opcode.name, argument)
        if len(self.stack) != 1 or self.below:
            raise ValueError("it does not end with one value")
        return self.stack[0]

    def step(self, name: str, argument: Any) -> None:
        """Interpret one opcode."""
        stack = self.stack
        if name in _VALUES:
            stack.append(_checked(argument))
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(self.memo[argument])
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            self.memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = stack[-1]
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _TUPLES:
            stack.append(tuple(self.popped(_TUPLES[name])))
        elif name not in ("PROTO", "FRAME", "STOP"):
            self.step_of_containers(name, argument)

    def step_of_containers(self, name: str, argument: Any) -> None:
        """Interpret one opcode that concerns containers, marks, names or arrays."""
        stack = self.stack
        match name:
            case "MARK":
                self.below.append(stack)
                self.stack = []
            case "EMPTY_LIST":
                stack.append([])
            case "EMPTY_DICT":
                stack.append({})
            case "LIST" | "TUPLE" | "DICT":
                items = self.marked()
                self.stack.append(items if name == "LIST" else tuple(items) if name == "TUPLE" else _filled({}, items))
            case "APPEND" | "APPENDS":
                items = self.popped(1) if name == "APPEND" else self.marked()
                _of_kind(list, self.stack[-1]).extend(items)
            case "SETITEM" | "SETITEMS":
                items = self.popped(2) if name == "SETITEM" else self.marked()
                _filled(_of_kind(dict, self.stack[-1]), items)
            case "POP":
                stack.pop()
            case "DUP":
                stack.append(stack[-1])
            case "POP_MARK":
                self.marked()
            case "GLOBAL":
                stack.append(_named(*argument.split(" ", 1)))
            case "STACK_GLOBAL":
                stack.append(_named(*self.popped(2)))
            case "REDUCE":
                function, arguments = self.popped(2)
                stack.append(_reduced(function, _of_kind(tuple, arguments)))
            case "BUILD":
                (state,) = self.popped(1)
                _built(stack[-1], _of_kind(tuple, state))
            case _:
                raise _RefusedError(f"it has the opcode {name}, and only arrays are read")

    def popped(self, count: int) -> list[Any]:
        """Pop the topmost values; returns them, the lowest first."""
        if count > len(self.stack):
            raise ValueError("its stack is empty")
        cut = len(self.stack) - count
        values = self.stack[cut:]
        del self.stack[cut:]
        return values

    def marked(self) -> list[Any]:
        """Pop the last mark and all values above it; returns the values."""
        values, self.stack = self.stack, self.below.pop()
        return values


def _checked(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() >= _WIDEST:
        raise _RefusedError(f"it holds a whole number of {value.bit_length()} bits, and at most 63 are read")
    return value


def _of_kind(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise _RefusedError(f"it treats a {type(value).__name__.lstrip('_')} as a {kind.__name__}")
    return value


def _filled(mapping: dict[Any, Any], items: list[Any]) -> dict[Any, Any]:
    if len(items) % 2:
        raise ValueError("a key has no value")
    for key, value in zip(items[::2], items[1::2], strict=True):
        if type(key) not in (str, int, float, bytes, bool):  # hashing a deep tuple would exhaust the call stack
            raise _RefusedError(
                f"a dictionary has a {type(key).__name__.lstrip('_')} as a key, expected text or a number"
            )
        mapping[key] = value
    return mapping


def _named(module: Any, name: Any) -> _Name:
    whole = f"{_of_kind(str, module)}.{_of_kind(str, name)}"
    if whole not in _ADMITTED:
        raise _RefusedError(f"it asks for {ascii(whole[:200])[1:-1]}, and only arrays are read")
    return _Name(whole)


def _reduced(function: Any, arguments: tuple[Any, ...]) -> Any:
    """The description of what a call of one of the allowed names would return."""
    match getattr(function, "name", None), arguments:
        case name, (_Name("numpy.ndarray"), tuple(), bytes() | str()) if name in _RECONSTRUCT:
            return _Array()
        case name, (bytes() | bytearray() as content, _Type() as kind, tuple(shape), str(order)) if (
            name in _FROM_BUFFER
        ):
            return _Array(kind, _shape(shape), bytes(content), order == "F")
        case "numpy.dtype", (str(text), *_):
            return _Type(text.lstrip("<>|="), text[:1] if text[:1] in "<>|=" else "=")
        case "_codecs.encode", (str(text), "latin1"):
            return text.encode("latin1")
        case name, () if name in _BYTES:
            return b""
    raise _RefusedError(f"it calls {getattr(function, 'name', 'something')} in a way in which no array is stored")


def _built(thing: Any, state: tuple[Any, ...]) -> None:
    """Set the state of an array's description or of its type."""
    match thing, state:
        case _Type(), (int(), "<" | ">" | "|" | "=" as order, None, None, None, *_):
            thing.order = order
        case _Array(content=None), (
            int(),
            tuple(shape),
            _Type() as kind,
            int(fortran),
            bytes() | str() | list() as content,
        ):
            thing.type, thing.shape, thing.fortran = kind, _shape(shape), bool(fortran)
            thing.content = content.encode("latin1") if isinstance(content, str) else content
        case _:
            raise _RefusedError("it gives something a state that no array of plain numbers has")


def _shape(shape: tuple[Any, ...]) -> tuple[int, ...]:
    if len(shape) > _DIMENSIONS or not all(type(length) is int and 0 <= length < 2**40 for length in shape):
        raise _RefusedError("it holds an array of an impossible shape")
    return shape


class _Finished:
    """Replaces descriptions by arrays, after the last opcode."""

    def __init__(self, most: int) -> None:
        self.left = most + 1000

    def value(self, value: Any, depth: int) -> Any:
        """A value in which all descriptions are replaced, at any depth."""
        self.left -= 1
        if depth > _DEEPEST or self.left < 0:
            raise _RefusedError("it holds too many values, or containers nested too deeply")
        kind = type(value)
        if kind is list:
            return [self.value(each, depth + 1) for each in value]
        if kind is tuple:
            return tuple(self.value(each, depth + 1) for each in value)
        if kind is dict:
            return {key: self.value(each, depth + 1) for key, each in value.items()}
        if kind is _Array:
            return self.array(value, depth)
        if kind in (_Name, _Type):
            raise _RefusedError("it holds a function or a type, and only arrays are read")
        return value

    def array(self, note: _Array, depth: int) -> Any:
        """An array of plain numbers, or the objects in an array of objects."""
        if note.type is None:
            raise _RefusedError("it holds an array without content")
        if note.type.code in _OBJECTS:
            objects = self.value(_of_kind(list, note.content), depth)
            if len(note.shape) > 1 or len(objects) != math.prod(note.shape):
                raise _RefusedError(f"it holds {len(objects)} objects as an array of the shape {note.shape}")
            return objects if note.shape else objects[0]
        if note.made is None:
            note.made = _made(note, note.type)
        return note.made


def _made(note: _Array, kind: _Type) -> np.ndarray:
    if kind.code not in _PLAIN:
        raise _RefusedError(f"it holds an array of the type {kind.code[:20]!r}, and only plain numbers are read")
    dtype = np.dtype(kind.order.replace("|", "=") + kind.code)
    content = _of_kind(bytes, note.content)
    if len(content) != math.prod(note.shape) * dtype.itemsize:
        raise _RefusedError(f"it holds {len(content):,} bytes for {note.shape} numbers of the type {dtype}")
    return np.frombuffer(content, dtype).reshape(note.shape, order="F" if note.fortran else "C").copy()
