"""A device without a GPU: it holds its tensors in this computer's memory, and is as strict as a GPU about them.

Tensors on `DEVICE` do not mix with those of the CPU, except for single numbers. Whatever would make the owner of a GPU
wait is counted by file and line: a value that is read back, and a result whose size depends on values. Within
`without_double` the device has no double precision, as Apple's.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

import clipper
from clipper.arguments import widest_float

_setup_privateuseone_for_python_backend("pretend")
_module: Any = vars(torch)[
    "pretend"
]  # other tests of this process keep and restore the state of every device's generator
_module.get_rng_state, _module.set_rng_state = lambda *_: torch.empty(0, dtype=torch.uint8), lambda *_: None
_module.get_amp_supported_dtype = lambda: [torch.bfloat16]  # torch.utils.checkpoint asks every device
CPU, DEVICE = torch.device("cpu"), torch.device("pretend", 0)
aten: Any = torch.ops.aten
_COPIES = (aten.copy_, aten._to_copy)
_WAITS = (
    aten._local_scalar_dense, aten.equal, aten.nonzero, aten.masked_select, aten._unique2, aten.unique_dim,
    aten.unique_consecutive, aten.unique_dim_consecutive, aten.bincount, aten.isin,
)  # fmt: skip
_INDEXED = (aten.index, aten.index_put, aten.index_put_)
_FACTORIES = (
    aten.empty.memory_format, aten.empty_strided.default, aten.arange.default, aten.arange.start,
    aten.arange.start_step, aten.eye.default, aten.eye.m,
)  # fmt: skip
"""All other tensors are made from these."""
_counters: list[Counter[str]] = []
_refused: list[torch.dtype] = []


class PretendTensor(torch.Tensor):
    """A tensor on the device; `held` is the same on the CPU."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor, normal: bool = False) -> PretendTensor:
        if held.dtype in _refused:
            raise TypeError(f"{DEVICE} has no {held.dtype}")
        with torch.inference_mode(torch.is_inference_mode_enabled() and not normal):
            made = torch.Tensor._make_wrapper_subclass(
                cls, held.shape, held.stride(), held.storage_offset(), dtype=held.dtype, device=DEVICE
            )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, packet = dict(kwargs or {}), func.overloadpacket
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
            return func.decompose(*args, **kwargs)  # inference mode does not take functions apart by itself
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        # A GPU takes single numbers of the CPU where every entry is worked out by itself.
        single = torch.Tag.pointwise in func.tags or packet in (*_INDEXED, aten.index_fill_)
        if packet not in _COPIES and any(t.device == CPU and (t.ndim or not single) for t in given):
            raise RuntimeError(f"{func} mixes tensors of {DEVICE} and the CPU")
        target = torch.device(kwargs.get("device") or (given[0].device if packet in _COPIES else DEVICE))
        if target == CPU or _waits(packet, args, kwargs):
            _count()
        if "device" in kwargs:
            kwargs["device"] = CPU
        found = func(*tree_map(_held, args), **tree_map(_held, kwargs))
        for tensor in given:
            if tensor.shape != _held(tensor).shape:
                raise NotImplementedError(f"{func} changes the shape of a tensor in place")
        own = {id(_held(tensor)): tensor for tensor in given}  # what changes in place stays the same tensor
        normal = func.is_view and not given[0].is_inference()

        def wrapped(value: Any) -> Any:
            return own[id(value)] if id(value) in own else cls(value, normal)

        return tree_map(lambda x: wrapped(x) if isinstance(x, torch.Tensor) and target != CPU else x, found)

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def __repr__(self, **_: Any) -> str:  # a look that does not count
        return f"{self.held} on {self.device}"


def _held(value: Any) -> Any:
    return value.held if isinstance(value, PretendTensor) else value


def _waits(packet: Any, args: Any, kwargs: Any) -> bool:
    if packet is aten.repeat_interleave:
        return kwargs.get("output_size") is None
    if packet in _INDEXED:
        masks = any(index is not None and index.dtype == torch.bool for index in args[1])
        return masks and (packet is aten.index or args[2].numel() != 1)  # one number for all is filled in at once
    return packet in _WAITS


def _count() -> None:
    """Count at the innermost line of the library that is no check of arguments."""
    source = str(Path(clipper.__file__).parent)
    frame: Any = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(source) and not name.endswith("arguments.py"):
            break
        frame = frame.f_back
    place = "elsewhere" if frame is None else f"{frame.f_code.co_filename[len(source) + 1 :]}:{frame.f_lineno}"
    for counter in _counters:
        counter[place] += 1


@contextmanager
def waits() -> Iterator[Counter[str]]:
    """How often the device made its owner wait, by file and line."""
    counter: Counter[str] = Counter()
    _counters.append(counter)
    try:
        yield counter
    finally:
        _counters.remove(counter)


@contextmanager
def without_double() -> Iterator[None]:
    """As if the device had no double precision."""
    widest_float.cache_clear()
    _refused.append(torch.float64)
    try:
        yield
    finally:
        _refused.clear()
        widest_float.cache_clear()


def _factory(op: Any) -> Any:
    return lambda *args, **kwargs: PretendTensor(op(*args, **{**kwargs, "device": CPU}))


def _copy_from(source: torch.Tensor, target: torch.Tensor, _: bool = False) -> torch.Tensor:
    _held(target).copy_(_held(source))
    return target


_library = torch.library.Library("aten", "IMPL")
for _op in _FACTORIES:
    _library.impl(_op, _factory(_op), "PrivateUse1")
_library.impl("_copy_from", _copy_from, "PrivateUse1")
