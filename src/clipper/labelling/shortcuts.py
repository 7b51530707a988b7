"""Reasoning shortcuts: maps of the labels (also many-to-one) under which given labels still satisfy every formula.

This is a constraint satisfaction problem. Each label gets a name, and the names of each sample's labels must be a
candidate of the sample. The search gives one label a name, removes the names that no candidate supports any more, and
splits the rest into parts that do not constrain each other. If several names of a label leave the other labels the same
choice, the search tries one of them. Maps are counted by multiplication and listed only on request.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from clipper.candidates import CandidateSet, Lattice
from clipper.candidates.comparison import PRIME, numbers_in, weighted_counts
from clipper.candidates.kinds import kind_of_label
from clipper.errors import InputError
from clipper.pruning.objectives import listed_only

Names = dict[int, tuple[int, ...]]
"""The names that each label may have; the label itself comes first."""

_DEEPEST = 200
"""Depth of the search tree at which a search stops."""
_LISTED = 1 << 18
"""From this number of candidates on, the list is converted to a lattice, which is faster to search."""
_FEW = 3
"""Rows with more open labels than this rarely rule out a name, so they are checked later. A label is open if it may
have several names."""
_PAIRS = 2_000
"""Largest number of (label, name) pairs that `common_maps` tries."""
_CELLS = 1 << 22
"""Largest number of tensor elements held at a time."""
_PASS = 200_000
"""The fixed cost of a pass over any number of rows, in numbers read: the overhead of the calls."""
_CHECKS = 2
"""Number of random weighted counts by which two sets of candidates are compared."""


@dataclass(frozen=True)
class Independent:
    """A set of maps: the product of parts that do not constrain each other.

    Attributes:
        free: labels that may have any of their names, independently of all other labels.
        parts: the maps of the other labels.
    """

    free: Names
    parts: tuple[Alternatives, ...]

    @property
    def complete(self) -> bool:
        """Whether no map was left out."""
        return all(part.complete for part in self.parts)

    def count(self, known: Collection[int] = ()) -> int:
        """How many maps keep the labels `known`."""
        names = (int(label in own) if label in known else len(own) for label, own in self.free.items())
        return math.prod(names) * math.prod(part.count(known) for part in self.parts)

    def maps(self) -> Iterator[dict[int, int]]:
        """The maps one after the other; first the identity, if it is one of them."""
        if not self.count():  # if the search was cut short, a part may contain no map
            return
        for names in itertools.product(*self.free.values()):
            for rest in _combined(self.parts):
                yield dict(zip(self.free, names, strict=True)) | rest

    def possible(self) -> Iterator[tuple[int, int]]:
        """Pairs of a label and a name that it has in some map, or that the search did not rule out."""
        yield from ((label, name) for label, own in self.free.items() for name in own)
        for part in self.parts:
            yield from part.possible()


@dataclass(frozen=True)
class Alternatives:
    """A set of maps of labels that constrain each other: the union of disjoint branches.

    Attributes:
        branches: disjoint sets of maps.
        unsearched: the names that were not ruled out if the search was cut short; empty if it was completed.
    """

    branches: tuple[Independent, ...]
    unsearched: Names

    @property
    def complete(self) -> bool:
        """Whether no map was left out."""
        return not self.unsearched and all(branch.complete for branch in self.branches)

    def count(self, known: Collection[int] = ()) -> int:
        """How many maps keep the labels `known`."""
        return sum(branch.count(known) for branch in self.branches)

    def maps(self) -> Iterator[dict[int, int]]:
        """The maps one after the other; first the identity, if it is one of them."""
        for branch in self.branches:
            yield from branch.maps()

    def possible(self) -> Iterator[tuple[int, int]]:
        """As `Independent.possible`."""
        yield from ((label, name) for label, own in self.unsearched.items() for name in own)
        for branch in self.branches:
            yield from branch.possible()


def _combined(parts: Sequence[Alternatives]) -> Iterator[dict[int, int]]:
    if not parts:
        yield {}
        return
    for first in parts[0].maps():
        for rest in _combined(parts[1:]):
            yield first | rest


def find_shortcuts(sets: CandidateSet, which: Tensor, rows: Tensor, *, one_to_one: bool, budget: int) -> Independent:
    """The maps of the labels, within their kinds, under which every row of labels is a candidate.

    Args:
        sets: different sets of candidates.
        which: the set that each row of labels belongs to, `(r,)`.
        rows: the labels, `(r, m)`; -1 in unused slots. No row of a set occurs twice.
        one_to_one: only maps that give different labels different names.
        budget: limit of the search, in numbers read.

    Returns:
        The maps; incomplete if the search reached the budget.
    """
    listed = listed_only(sets)
    if listed is not None and int(listed.offsets.diff()[which].sum()) > _LISTED:
        with suppress(InputError):  # two sets share a candidate: keep the list
            sets = Lattice.from_candidates(listed)
    return _Search(sets.batch(which), rows, one_to_one, budget).all_maps()


class _Search:
    def __init__(self, candidates: CandidateSet, rows: Tensor, one_to_one: bool, budget: int) -> None:
        self.candidates, self.rows, self.one_to_one, self.left = candidates, rows, one_to_one, budget
        self.classes = candidates.classes
        member = torch.zeros(len(rows), self.classes + 1, device=rows.device)
        self.member = member.scatter_(1, torch.where(rows < 0, self.classes, rows), 1.0)[:, :-1]  # (rows, c)
        self.held = candidates.slots * self.classes  # numbers held for a row of labels
        if listed_only(candidates) is not None:
            self.held += numbers_in(candidates)
        self.looked_at = candidates.slots * self.classes + numbers_in(candidates)
        drawn = torch.Generator().manual_seed(0)
        self.weights = torch.randint(1, PRIME, (_CHECKS, candidates.slots, self.classes), generator=drawn).to(rows)

    def all_maps(self) -> Independent:
        """The maps of all labels; the independent parts share the budget."""
        labels = torch.arange(self.classes, device=self.rows.device)
        kind = kind_of_label(labels, self.candidates.kinds)
        every = torch.arange(len(self.rows), device=self.rows.device)
        names, open_rows = self._supported((kind[:, None] == kind)[None], every, most_open=self.classes)
        found = self._split(names[0], labels.tolist(), every[open_rows[0]], floor=0, depth=0)
        assert found is not None, "the identity is a map"
        return found

    def _split(self, names: Tensor, labels: list[int], rows: Tensor, floor: int, depth: int) -> Independent | None:
        """The maps of some labels, part by part; None if there are none.

        Args:
            names: which names each label may have, `(c, c)` bool.
            labels: the labels to name.
            rows: the ids of the rows of labels that constrain them.
            floor: the part of the budget that must be left afterwards.
            depth: how many labels have been named so far.
        """
        free, groups = self._groups(names, labels, rows)
        parts = []
        for done, (group, own_rows) in enumerate(groups):
            share = (self.left - floor) // (len(groups) - done)
            part = self._branch(names, group, own_rows, self.left - share, depth)
            if not part.branches and part.complete:
                return None
            parts.append(part)
        return Independent({label: _own_first(names[label], label) for label in free}, tuple(parts))

    def _branch(self, names: Tensor, labels: list[int], rows: Tensor, floor: int, depth: int) -> Alternatives:
        """The maps of labels that constrain each other: give one label each of its names, and recurse."""
        if self.left <= floor or depth == _DEEPEST:
            return Alternatives((), {y: _own_first(names[y], y) for y in labels})
        label = self._next(names, labels, rows)
        tried = _own_first(names[label], label)
        branches = []
        together = max(1, _CELLS // (max(1, len(rows)) * self.held + names.numel()))
        for some in torch.split(torch.tensor(tried, device=names.device), together):
            given = names.repeat(len(some), 1, 1)  # (b, c, c)
            given[:, label] = one_hot(some, self.classes).bool()
            left, open_rows = self._supported(given, rows, most_open=_FEW)
            for alike in self._alike(label, some, left, open_rows, rows):
                first = alike[0]
                branch = self._split(left[first], labels, rows[open_rows[first]], floor, depth + 1)
                if branch is not None:
                    own = {label: tuple(some[alike].tolist())}
                    branches.append(replace(branch, free=branch.free | own))
        return Alternatives(tuple(branches), {})

    def _alike(self, label: int, names: Tensor, left: Tensor, open_rows: Tensor, ids: Tensor) -> list[list[int]]:
        """Group the names of a label: all names in a group leave the same maps of all other labels.

        Args:
            label: the label.
            names: its names, `(b,)`.
            left: for each of these names, the names that every label may still have, `(b, c, c)` bool.
            open_rows: for each of these names, the rows that still constrain labels, `(b, r)` bool.
            ids: the rows, `(r,)`.

        Returns:
            Positions in `names`, without those that leave some label without a name.
        """
        others = left.clone()
        others[:, label] = False
        groups: dict[tuple[bytes, bytes], list[int]] = {}
        for place in left.any(2).all(1).nonzero()[:, 0].tolist():
            key = others[place].cpu().numpy().tobytes(), open_rows[place].cpu().numpy().tobytes()
            groups.setdefault(key, []).append(place)
        has_label = self.member[ids, label] > 0
        merged = (self._merged(own, label, names, left, ids[open_rows[own[0]] & has_label]) for own in groups.values())
        return sorted(itertools.chain.from_iterable(merged))

    def _merged(self, places: list[int], label: int, names: Tensor, left: Tensor, ids: Tensor) -> list[list[int]]:
        """Group the names of a label: all names in a group leave every row the same candidates in its other slots.

        If the slots J of a row have the label and the label gets the name a, the weighted count of the row's candidates
        is Π_J w(j, a) times the weighted count of its other slots."""
        if len(places) == 1 or not len(ids):
            return [places]
        rows = self.rows[ids]  # (r, m)
        part = self.candidates.batch(ids)
        self.left -= len(places) * (_CHECKS * len(rows) * self.looked_at + _PASS)
        merged: list[tuple[Tensor, Tensor, list[int]]] = []
        for place in places:
            allowed = left[place][rows.clamp(min=0)] | (rows < 0)[..., None]  # (r, m, c)
            whole = weighted_counts(part.narrowed(allowed.flatten(0, 1)), self.weights)  # (r, checks)
            own = torch.ones_like(whole)
            for here, weight in zip((rows == label).unbind(1), self.weights[..., names[place]].unbind(1), strict=True):
                own = torch.where(here[:, None], own * weight % PRIME, own)
            for first_whole, first_own, alike in merged:
                if torch.equal(whole * first_own % PRIME, first_whole * own % PRIME):
                    alike.append(place)
                    break
            else:
                merged.append((whole, own, [place]))
        return [alike for *_, alike in merged]

    def _next(self, names: Tensor, labels: list[int], ids: Tensor) -> int:
        """The label to name next: the fewest names, then a row with the fewest open labels, then the most rows."""
        several = names.sum(1) > 1
        member = self.member[ids]  # (r, c)
        number = (member * several).sum(1, keepdim=True)  # (r, 1), the number of open labels
        fewest = pad(torch.where(member > 0, number, self.classes + 1), (0, 0, 0, 1), value=self.classes + 1).amin(0)
        rank = torch.stack([names.sum(1), fewest, -member.sum(0)], dim=1).tolist()
        return min(labels, key=lambda label: rank[label])

    def _supported(self, names: Tensor, ids: Tensor, most_open: int) -> tuple[Tensor, Tensor]:
        """Remove the names that no candidate supports. If no map is left, some label has no name left.

        Args:
            names: which names each label may have, in `b` cases, `(b, c, c)` bool.
            ids: the rows of labels that constrain them, `(r,)`.
            most_open: check only rows with at most this number of open labels.

        Returns:
            The remaining names, `(b, c, c)`, and which of the rows still constrain their labels, `(b, r)` bool.
        """
        constrain = torch.ones(len(names), len(ids), dtype=torch.bool, device=names.device)
        now = torch.zeros(len(ids), dtype=torch.bool, device=names.device)
        while True:
            before = now
            number = (names.sum(2) > 1).float() @ self.member[ids].T  # (b, r), the number of open labels
            now = before | (number[names.any(2).all(1)] <= most_open).any(0)
            names, constrain[:, now] = self._filtered(names, ids[now])
            if torch.equal(now, before):
                return names, constrain

    def _filtered(self, names: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        """As `_supported`, but checks all given rows."""
        rows = self.rows[ids]  # (r, m)
        used = (rows >= 0)[..., None]
        place = torch.where(rows < 0, self.classes, rows).flatten()
        part = self.candidates.batch(ids.repeat(len(names)))
        while True:
            self.left -= len(names) * (len(rows) * self.looked_at + names[0].numel()) + _PASS
            left = _distinct(names) if self.one_to_one else names
            if len(rows):
                allowed = left[:, rows.clamp(min=0)] | ~used  # (b, r, m, c)
                part = part.narrowed(allowed.flatten(0, 2))
                missing = (~part.support.view(allowed.shape) & used).flatten(1, 2).int()
                lost = missing.new_zeros(len(names), self.classes + 1, self.classes).index_add_(1, place, missing)
                left = left & (lost[:, :-1] == 0)
            if torch.equal(left, names) or not bool(left.any(2).all(1).any()):
                break
            names = left
        sizes = torch.where(used[..., 0], left.sum(2)[:, rows.clamp(min=0)], 1).flatten(0, 1).tolist()
        entailed = [count == math.prod(own) for count, own in zip(part.counts, sizes, strict=True)]
        return left, ~torch.tensor(entailed, dtype=torch.bool, device=names.device).view(len(names), -1)

    def _groups(
        self, names: Tensor, labels: list[int], ids: Tensor
    ) -> tuple[list[int], list[tuple[list[int], Tensor]]]:
        """The labels without constraints, and the groups of labels that constrain each other with their rows."""
        several = names.sum(1) > 1  # (c,)
        member = self.member[ids] * several  # (r, c)
        linked = member.T @ member > 0  # (c, c)
        if self.one_to_one:
            shared = names.float() @ names.float().T > 0
            linked |= (shared & several & several[:, None]).fill_diagonal_(False)
        neighbours = [row.nonzero()[:, 0].tolist() for row in linked]
        free, groups, reached = [], [], set()
        for label in labels:
            if label in reached:
                continue
            group = [label]
            reached.add(label)
            for other in group:
                new = [y for y in neighbours[other] if y not in reached]
                reached.update(new)
                group += new
            if neighbours[label]:
                groups.append((sorted(group), ids[member[:, group].any(1)]))
            else:
                free.append(label)
        return free, groups


def _own_first(names: Tensor, label: int) -> tuple[int, ...]:
    """The names of a label, given as `(c,)` bool; the label itself comes first."""
    return tuple(sorted(names.nonzero()[:, 0].tolist(), key=lambda name: (name != label, name)))


def _distinct(names: Tensor) -> Tensor:
    """Remove the only name of a label from all other labels, `(b, c, c)` bool. If two labels have the same only name,
    both lose it."""
    settled = names & (names.sum(2, keepdim=True) == 1)
    times = settled.sum(1, keepdim=True)  # (b, 1, c)
    return names & ((times == 0) | (settled & (times == 1)))


def common_maps(possible: Tensor, kinds: Sequence[tuple[int, int]]) -> Tensor:
    """Simple maps to try if a search is cut short, `(k, c)`: one name changed, two names exchanged, all names shifted.

    All maps are within a kind. If there are many labels, only the first changes and exchanges are included.

    Args:
        possible: the names that each label may have, `(c, c)` bool.
        kinds: the first label of each kind, and the first label after it.

    Examples:
        >>> common_maps(torch.ones(2, 2, dtype=torch.bool), [(0, 2)]).tolist()
        [[1, 1], [1, 0], [0, 0]]
    """
    classes = len(possible)
    identity = list(range(classes))
    found: dict[tuple[int, ...], None] = {}
    for label, name in possible.nonzero()[:_PAIRS].tolist():
        changed, exchanged = identity.copy(), identity.copy()
        changed[label] = exchanged[label] = name
        exchanged[name] = label
        found[tuple(changed)] = found[tuple(exchanged)] = None
    for start, stop in kinds:
        own = identity[start:stop]
        for turned in (own[::-1], *(own[step:] + own[:step] for step in range(1, len(own)))):
            found[(*identity[:start], *turned, *identity[stop:])] = None
    found.pop(tuple(identity), None)
    fits = [names for names in found if bool(possible[torch.arange(classes), list(names)].all())]
    return torch.tensor(fits, dtype=torch.long).view(-1, classes)
