"""Pickles that nobody trusts: none crashes the reader, none calls anything, and all are refused in words."""

from __future__ import annotations

import itertools
import os
import pickle
import random
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from clipper.benchmarks.data.pickles import read_arrays
from tests.hardening.attack import EFFORT, ROOT, Clippers, damaged, listing, refused

FOREIGN = [
    "os system", "posix system", "subprocess Popen", "builtins eval", "builtins exec", "builtins getattr",
    "builtins open", "builtins print", "builtins __import__", "builtins object", "builtins bytearray", "builtins list",
    "numpy load", "numpy frombuffer", "numpy fromfile", "numpy array", "numpy empty", "numpy matrix", "numpy float64",
    "numpy.core.multiarray scalar", "numpy._core.multiarray fromfile", "numpy.ctypeslib as_array", "ctypes string_at",
    "numpy._core._multiarray_umath _reconstruct", "copyreg _reconstructor", "torch load", "collections OrderedDict",
    "functools partial", "operator attrgetter", "types FunctionType", "pickle loads", "clipper.cli main",
    "numpy memmap",
    "numpy.lib.format open_memmap", "numpy recarray", "numpy.rec array", "io FileIO", "numpy ndarray.__setstate__",
]  # fmt: skip
KNOWN = [
    "numpy ndarray", "numpy dtype", "numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct",
    "numpy.core.numeric _frombuffer", "numpy._core.numeric _frombuffer", "_codecs encode", "__builtin__ bytes",
]  # fmt: skip
CODES = [
    "O", "O8", "|O8", "Q", "<u8", ">f4", "f8", "S8", "U4", "V16", "M8[s]", "i4,O", "(3,)O", "{}", "c16", "", "u1", "?",
]  # fmt: skip
NUMPY_ARRAYS = [
    np.arange(24, dtype=np.uint8).reshape(2, 12),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.array({3: np.ones(4, np.float32)}, dtype=object),
    np.arange(5, dtype=">i2"),
]


def _text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def _bytes(value: bytes) -> bytes:
    return b"B" + struct.pack("<I", len(value)) + value


def _named(name: str) -> bytes:
    return b"c" + name.replace(" ", "\n").encode() + b"\n"


def _integer(value: int) -> bytes:
    raw = value.to_bytes(9, "little", signed=True)
    return b"\x8a\x09" + raw


def _type(code: str, state: bytes | None = None) -> bytes:
    made = _named("numpy dtype") + _text(code) + b"\x89\x88\x87R"
    return made + state + b"b" if state is not None else made


def _shape(*lengths: int) -> bytes:
    return b"(" + b"".join(_integer(length) for length in lengths) + b"t"


def _empty() -> bytes:
    return _named("numpy.core.multiarray _reconstruct") + _named("numpy ndarray") + b"K\x00\x85C\x01b\x87R"


def _array(shape: bytes, kind: bytes, content: bytes, fortran: bytes = b"\x89") -> bytes:
    return _empty() + b"(K\x01" + shape + kind + fortran + content + b"tb"


POINTERS = _bytes(b"A" * 512)
HIDDEN = b"(K\x03" + _text("|") + b"NNN" + b"J\xff\xff\xff\xff" * 2 + b"K\x00t"
"""The state of a type of objects without the flag that says so."""

KNOWN_ATTACKS = {
    "an array of objects over bytes": _named("numpy ndarray") + _shape(64) + _text("O") + POINTERS + b"\x87R",
    "an array of objects filled with bytes": _array(_shape(64), _type("O8"), POINTERS),
    "a type that hides its objects": _array(_shape(64), _type("O8", HIDDEN), POINTERS),
    "a type that changes its size": _array(
        _shape(64),
        _type("u1", b"(K\x03" + _text("|") + b"NNN" + _integer(2**40) + _integer(1) + b"K\x3ft"),
        POINTERS,
    ),
    "a type with fields": _array(
        _shape(4),
        _type("V16", b"(K\x03" + _text("|") + b"N" + _text("a") + b"\x85}K\x10K\x01K\x00t"),
        POINTERS,
    ),
    "memory that nobody filled": _named("numpy ndarray") + _shape(64) + _text("Q") + b"\x86R",
    "an array that is never filled": _empty(),
    "fewer bytes than numbers": _array(_shape(65), _type("u8"), POINTERS),
    "more bytes than numbers": _array(_shape(63), _type("u8"), POINTERS),
    "a negative length": _array(_shape(-64), _type("u8"), POINTERS),
    "two negative lengths": _array(_shape(-8, -8), _type("u8"), POINTERS),
    "a shape beyond the memory": _array(_shape(2**40, 2**40, 2**40), _type("u8"), POINTERS),
    "no number of a huge shape": _array(_shape(0, 2**39, 2**39), _type("u8"), _bytes(b"")),
    "too many dimensions": _array(_shape(*[1] * 70), _type("u1"), _bytes(b"A")),
    "an array filled twice": _array(_shape(1), _type("u1"), _bytes(b"A"))
    + b"(K\x01" + _shape(9) + _type("O8") + b"\x89]tb",
    "an array that holds itself": _empty() + b"q\x01(K\x01)" + _type("O8") + b"\x89]h\x01atb",
    "objects of another number": _array(_shape(9), _type("O8"), b"]K\x01a"),
    "a list in a list without end": b"]q\x00h\x00a",
    "a dictionary in itself": b"}q\x00" + _text("x") + b"h\x00s",
    "a tuple in itself": b"]q\x00h\x00\x85a0h\x00",
    "ten to the thirtieth lists": b"(lp0\n0" + b"".join(
        b"](" + b"g%d\n" % i * 10 + b"ep%d\n0" % (i + 1) for i in range(30)
    ) + b"g30\n",
    "a hundred thousand lists in one another": b"]" * 100_000 + b"a" * 99_999,
    "a hundred thousand tuples as a key": b"})" + b"\x85" * 100_000 + b"K\x01s",
    "a note at the end of memory": b"NNr\xff\xff\xff\xff",
    "a written note at the end of memory": b"NNp99999999999999999999\n",
    "bytes beyond the file": b"\x8e" + struct.pack("<Q", 2**62),
    "text beyond the file": b"\x8d" + struct.pack("<Q", 2**40),
    "changeable bytes beyond the file": b"\x96" + struct.pack("<Q", 2**36),
    "a frame beyond the file": b"\x80\x05\x95" + struct.pack("<Q", 2**63) + b"NN",
    "a number of two billion bytes": b"\x8b\xff\xff\xff\x7f",
    "a number of a negative length": b"\x8b\xff\xff\xff\xff",
    "a number of ten thousand digits": b"I" + b"9" * 10_000 + b"\n",
    "a number of a million bytes": b"\x8b" + struct.pack("<i", 10**6) + b"\x7f" * 10**6,
    "lists of a million": b"](" + b"K\x01" * 10**6 + b"e" + b"q\x00](" + b"h\x00" * 10**5 + b"e",
    "a persistent id": _text("x") + b"Q",
    "a written persistent id": b"Pxyz\n",
    "an extension": b"\x82\x01",
    "a long extension": b"\x84\x01\x00\x00\x00",
    "a buffer from elsewhere": b"\x80\x05\x97\x98",
    "an instance": b"(" + _text("id") + b"ios\nsystem\n",
    "an object": b"(" + _named("os system") + _text("id") + b"o",
    "a new object": _named("numpy ndarray") + _shape(64) + b"\x85\x81",
    "a new object with keywords": _named("numpy ndarray") + b")}" + b"\x92",
    "a name from the stack": _text("os") + _text("system") + b"\x93" + _text("id") + b"\x85R",
    "a dotted name": _text("numpy") + _text("ndarray.__setstate__") + b"\x93",
    "a name in surrogates": b"X\x03\x00\x00\x00\xed\xb2\x80" + _text("\x1b[2J") + b"\x93",
    "a name that is a list": b"]]\x93",
    "a call of a number": b"K\x01)R",
    "a state for a number": b"K\x01(K\x01tb",
    "a state that sets attributes": _empty() + b"N}" + _text("made") + b"K\x01s\x86b",
    "a codec of another kind": _named("_codecs encode") + _text("x") + _text("zip") + b"\x86R",
    "bytes by their number": _named("__builtin__ bytes") + _integer(2**40) + b"\x85R",
    "a function as a value": _named("_codecs encode"),
    "a mark as a value": b"(",
    "nothing": b"",
}  # fmt: skip
"""Each without its end. All must be refused."""


class _Craft:
    """Pickles that aim at arrays and calls, from parts that fit together more often than not."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def pickle(self) -> bytes:
        start = self.rng.choice([b"", b"\x80\x02", b"\x80\x04", b"\x80\x05"])
        return start + self.nested() + self.rng.choice([b".", b".", b"", b"0."])

    def atom(self) -> bytes:
        rng = self.rng
        match rng.randrange(10):
            case 0:
                return rng.choice([b"N", b"\x88", b"\x89", b")", b"]", b"}", b"K\x01"])
            case 1:
                return _integer(rng.choice([0, 1, -1, 64, 2**31, 2**62, -(2**63)]))
            case 2:
                return _text(rng.choice(["", "latin1", "|", "<", "x", *CODES]))
            case 3:
                return _bytes(b"A" * rng.choice([0, 1, 8, 512]))
            case 4:
                return _named(rng.choice(KNOWN))
            case 5:
                return _named(rng.choice(FOREIGN))
            case 6:
                return _type(rng.choice(CODES))
            case 7:
                return _empty()
            case 8:
                return _shape(*(rng.choice([-1, 0, 1, 2, 8, 64, 2**33]) for _ in range(rng.randrange(4))))
            case _:
                return rng.choice([b"\x96" + struct.pack("<Q", 8) + rng.randbytes(8), b"G" + rng.randbytes(8)])

    def values(self, count: int) -> bytes:
        return b"".join(self.nested() if self.rng.random() < 0.3 else self.atom() for _ in range(count))

    def marked(self, most: int, end: bytes) -> bytes:
        return b"(" + self.values(self.rng.randrange(most + 1)) + end

    def nested(self) -> bytes:
        rng = self.rng
        match rng.randrange(10):
            case 0:
                return self.marked(5, rng.choice([b"t", b"l", b"d", b"o", b"ios\nsystem\n"]))
            case 1:
                return _named(rng.choice(KNOWN)) + self.marked(4, rng.choice([b"tR", b"t\x81", b"t}\x92"]))
            case 2:
                module, name = rng.choice(KNOWN + FOREIGN).split()
                return _text(module) + _text(name) + b"\x93"
            case 3 | 4:
                state = rng.choice([None, HIDDEN, self.marked(8, b"t")])
                shape = _shape(*(rng.choice([0, 1, 8, 64]) for _ in range(rng.randrange(3))))
                return _array(shape, _type(rng.choice(CODES), state), self.atom())
            case 5:
                return _empty() + self.marked(5, b"tb")
            case 6:
                return self.values(2) + rng.choice([b"b", b"R", b"\x93"])
            case 7:
                shape = _shape(rng.choice([1, 8, 64]))
                arguments = self.atom() + _type(rng.choice(CODES)) + shape + _text(rng.choice("CFA"))
                return _named("numpy.core.numeric _frombuffer") + b"(" + arguments + b"tR"
            case 8:
                return rng.choice([b"]" + self.marked(3, b"e"), b"}" + self.marked(4, b"u")])
            case _:
                return self.values(1) + rng.choice([b"\x94h", b"q"]) + rng.randbytes(1)


def _attacks(count: int) -> Iterator[tuple[str, bytes]]:
    yield from ((name, attack + b".") for name, attack in KNOWN_ATTACKS.items())
    for name, protocol in itertools.product(FOREIGN, range(2)):
        module, function = name.split()
        call = _named(name) if protocol == 0 else _text(module) + _text(function) + b"\x93"
        yield f"{name} called", call + _text("id") + b"\x85R."
    craft = _Craft(7)
    for i in range(count // 2):
        yield f"crafted {i}", craft.pickle()
    genuine = [pickle.dumps({"data": [a, a], "labels": [3, 1]}, p) for a in NUMPY_ARRAYS for p in range(6)]
    for i, content in enumerate(genuine):
        for j, attack in enumerate(damaged(content, count // 2 // len(genuine) + 1, i)):
            yield f"damaged {i} {j}", attack


def test_five_thousand_pickles_are_read_or_refused_and_call_nothing() -> None:
    attacks = list(_attacks(5_000 * EFFORT))
    ran = subprocess.run(
        [sys.executable, "-m", "tests.hardening.pickle_worker"],
        input="".join(content.hex() + "\n" for _, content in attacks),
        capture_output=True, text=True, check=False, cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
    )  # fmt: skip
    told = ran.stdout.splitlines()
    assert len(told) == len(attacks), (
        f"{attacks[len(told)][0]} ended the reader, exit code {ran.returncode}: {ran.stderr[-2000:]}"
    )
    wrong = [f"{name}: {line}" for (name, _), line in zip(attacks, told, strict=True) if line.startswith("raw")]
    assert not wrong, f"{len(wrong)} of {len(attacks)}:\n" + "\n".join(wrong[:30])
    for (name, _), line in zip(attacks, told, strict=True):
        assert name not in KNOWN_ATTACKS or line.startswith("refused"), f"{name}: {line}"
        assert not name.endswith("called") or "only arrays are read" in line, f"{name}: {line}"
    assert len(attacks) >= 5_000 * EFFORT
    assert 10 < sum(line == "read" for line in told) < len(told) / 2  # the parts fit together now and then


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_genuine_arrays_come_back_from_every_protocol(protocol: int) -> None:
    rng = np.random.default_rng(protocol)
    for kind, order, shape in itertools.product("?bhilqBHILQefd", "<>", [(), (0, 3), (4,), (2, 3), (3, 1, 2)]):
        array = np.array(100 * rng.random(shape)).astype(np.dtype(kind).newbyteorder(order))
        for each in (array, np.asfortranarray(array), array.T):
            back = read_arrays(pickle.dumps([each, (each,)], protocol), "the array")
            assert back[0].dtype == each.dtype
            assert back[0].shape == each.shape
            assert np.array_equal(back[0], each)
            assert back[0].flags.writeable
    content = {"text": "é\udc80", "bytes": b"\x00\xff", 3: [None, True, -(2**62), 0.1], "none": ()}
    assert read_arrays(pickle.dumps(content, protocol), "the rest") == content


TRAIN = [
    "train", "--rule", "vqar", "--data", "vqar", "--samples", "1000", "--data-root", ".", "--out", "run.json",
]  # fmt: skip


def _features(folder: Path, content: bytes) -> None:
    """Content as the pickle of a `features.npy`, beside a scene graph of ten images."""
    own = folder / "vqar"
    own.mkdir(exist_ok=True)
    graphs = {
        i: {"names": {2 * i: 0, 2 * i + 1: 1}, "bboxes": {2 * i: [0.1] * 4, 2 * i + 1: [0.5] * 4},
            "relations": {2 * i: {2 * i + 1: 3}}}
        for i in range(10)
    }  # fmt: skip
    (own / "gqa_formatted_scene_graph.pkl").write_bytes(pickle.dumps(graphs))
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (), }"
    header = header.ljust(117) + b"\n"
    (own / "features.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content)


@pytest.mark.skipif(
    not (Path(os.environ.get("CLIPPER_DATA", "")) / "vqar" / "cric_facts.tsv").is_file(),
    reason="CRIC's facts are not here: set CLIPPER_DATA",
)
def test_a_crafted_features_file_is_refused_by_the_command_line_and_leaves_nothing(
    clippers: Clippers, tmp_path: Path
) -> None:
    attacks = [content + b"." for content in KNOWN_ATTACKS.values() if len(content) < 10_000]
    attacks += [_Craft(i).pickle() for i in range(20 * EFFORT)]
    for content in attacks:
        _features(tmp_path, content)
        before = listing(tmp_path)
        ran = clippers.run(*TRAIN, cwd=tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache"), CLIPPER_OFFLINE="1")
        ran.check_refused()
        assert "features" in ran.err, ran.err
        assert listing(tmp_path) == before


def test_a_refusal_names_the_file_and_what_it_asked_for() -> None:
    error = refused(lambda: read_arrays(_named("os system") + _text("id") + b"\x85R.", "features.npy"))
    assert "features.npy is not read: it asks for os.system, and only arrays are read" in str(error)
