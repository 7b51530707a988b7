"""Kinds: the range of the label axis that each classifier owns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clipper.arguments import number_in_words, shown, whole_number
from clipper.errors import InputError

Classes = int | Mapping[str, int]
"""The number of labels, or the number of labels of each kind."""
MOST_CLASSES = 2**24
"""Largest number of labels: a table of the labels of each instance must fit into memory."""


@dataclass(frozen=True)
class Kind:
    """One classifier's labels: the half-open range `start … stop` of the label axis.

    Attributes:
        name: what the classifier predicts, such as `"name"` or `"rel"`.
        start: its first label.
        stop: one past its last label.
    """

    name: str
    start: int
    stop: int


def sizes_of(kinds: Sequence[Kind]) -> dict[str, int]:
    """The number of labels of each kind: the reverse of `kinds_of`.

    Examples:
        >>> sizes_of(kinds_of({"name": 50, "rel": 20}))
        {'name': 50, 'rel': 20}
    """
    return {kind.name: kind.stop - kind.start for kind in kinds}


def kinds_of(classes: Classes) -> tuple[Kind, ...]:
    """The kinds of label, one after the other on the label axis.

    Args:
        classes: the number of labels, or a mapping from each kind of label to its number.

    Raises:
        InputError: a number is not positive, or there are too many labels.

    Examples:
        >>> kinds_of({"name": 50, "rel": 20})
        (Kind(name='name', start=0, stop=50), Kind(name='rel', start=50, stop=70))
    """
    if isinstance(classes, list | tuple) and classes and all(isinstance(name, str) for name in classes):
        raise InputError(
            f"expected classes as the number of labels, got their names {shown(classes)}; pass "
            f"classes={len(classes)}, and the names to clipper.label(…, label_names=…)"
        )
    sizes = classes if isinstance(classes, Mapping) else {"label": classes}
    kinds: list[Kind] = []
    for name, size in sizes.items():
        if not isinstance(name, str):
            raise InputError(f"expected the names of kinds as strings, got {shown(name)}")
        number = whole_number(size, f"a positive number of classes for kind {name!r}")
        start = kinds[-1].stop if kinds else 0
        kinds.append(Kind(name, start, start + number))
    if not kinds:
        raise InputError("expected at least one kind of label, got an empty mapping of classes")
    if kinds[-1].stop > MOST_CLASSES:
        raise InputError(f"expected at most {MOST_CLASSES:,} classes, got {number_in_words(kinds[-1].stop)}")
    return tuple(kinds)


def kind_of_label(labels: Tensor, kinds: tuple[Kind, ...]) -> Tensor:
    """The index of each label's kind, -1 for unused slots; same shape as `labels`."""
    if len(kinds) == 1:
        return (labels >= 0).long().sub_(1)
    starts = torch.tensor([kind.start for kind in kinds], device=labels.device)
    return torch.searchsorted(starts, labels.long().contiguous(), right=True) - 1


def smallest_type(kinds: tuple[Kind, ...]) -> torch.dtype:
    """The smallest signed integer type that holds every label."""
    types = (torch.int8, torch.int16, torch.int32)
    return next(t for t in types if kinds[-1].stop <= torch.iinfo(t).max)
