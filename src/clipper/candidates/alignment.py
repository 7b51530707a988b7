"""Alignments: which frame shows which action, if a clip shows the actions of its text in order.

Texts differ, their lattices do not: a way through a text's places, each for one frame or more. So all clips share one
small graph of places, and each keeps a row that says which action its places stand for.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor

from clipper.arguments import as_list, shown, whole_numbers
from clipper.candidates.base import check_log_probs, outside_inference_mode
from clipper.candidates.checks import targets_and_lengths
from clipper.candidates.kinds import kinds_of
from clipper.candidates.lattice import Lattice
from clipper.candidates.lattices import chains
from clipper.candidates.lattices.building import graph_of
from clipper.candidates.lattices.expansion import BUDGET
from clipper.candidates.machines import PLACES
from clipper.candidates.template_set import TemplateSet
from clipper.errors import InputError


@dataclass(frozen=True, eq=False, repr=False)
class Alignments(Lattice):
    """A `Lattice` of clips and their texts; build one with `from_texts`.

    The same candidates as those of the state machine `clipper.candidates.machines.alignment`, at the size of real
    clips: time and memory do not grow with the number of different texts.

    Examples:
        >>> clips = Alignments.from_texts([(2, 0), (2, 1, 2)], frames=[4, 128], classes=3)
        >>> clips
        Alignments(2 samples, 128 slots, 3 classes, 379 states)
        >>> clips.counts  # one change at 3 places, two at 127
        [3, 8001]
        >>> clips.span(0, 1).to_candidates().labels[:, :4].tolist()
        [[2, 2, 2, 0], [2, 2, 0, 0], [2, 0, 0, 0]]
    """

    PER_SAMPLE: ClassVar[tuple[str, ...]] = (*Lattice.PER_SAMPLE, "actions")

    actions: Tensor = field(kw_only=True)
    """`(n, a)`: the action that each place of a sample's text stands for; -1 past its end."""

    @classmethod
    @outside_inference_mode
    def from_texts(cls, texts: Sequence[Sequence[int]], frames: int | Sequence[int], classes: int) -> Alignments:
        """The alignments of each clip's frames with its text.

        Args:
            texts: the actions of each of the `n` clips, in order; neighbouring actions differ.
            frames: how many each clip has.
            classes: how many actions there are.
        """
        actions = kinds_of(classes)
        if len(actions) > 1:
            raise InputError(f"expected one number of actions as classes, got {shown(classes)}")
        told = _read_texts(texts, actions[0].stop)
        if isinstance(frames, Sequence) and len(frames) != len(told):
            raise InputError(f"expected a text and a number of frames for each clip, got {len(told)} and {len(frames)}")
        places, lengths = targets_and_lengths([len(text) for text in told], frames)
        _check_frames(told, lengths)
        longest = max(map(len, told))
        graph, template = graph_of(*PLACES, places, lengths, kinds_of(longest), None, budget=BUDGET)
        rows = [[*text, *[-1] * (longest - len(text))] for text in told]
        return cls(template, actions, graph=graph, actions=torch.tensor(rows))

    @property
    def places(self) -> Tensor:
        """How many actions each text has, `(n,)`."""
        return (self.actions >= 0).sum(1)

    @property
    def targets(self) -> list[Hashable]:
        """The texts, as tuples."""
        return [tuple(action for action in row if action >= 0) for row in self.actions.tolist()]

    @property
    def contents(self) -> tuple[Tensor, ...]:
        """The tensors that tell this lattice from others."""
        return *super().contents, self.actions

    def log_probability(self, log_probs: Tensor) -> Tensor:
        """As for any lattice; exact in logarithms, however long the clips."""
        check_log_probs(log_probs, self)
        weights = self._inward(log_probs)
        if self.allowed is not None:
            weights = torch.where(self._mask, weights, -torch.inf)
        return chains.log_sum(weights, self.lengths, self.places)

    def output_probabilities(self, log_probs: Tensor) -> Tensor:
        """Not for alignments: a text may be read in clips of any length."""
        del log_probs
        raise InputError(
            "expected the outputs' lattice of a rule, got alignments; build the pairs of clips and texts to compare "
            "with Alignments.from_texts, and ask for their log_probability"
        )

    def contains(self, gold: Tensor) -> Tensor:
        """Whether each sample's gold labels `(n, m)` are among its candidates, `(n,)` bool."""
        return TemplateSet.contains(self, gold)  # the graph is one of places, which a lattice would follow

    @cached_property
    @outside_inference_mode
    def support(self) -> Tensor:
        """The labels that each instance takes in some candidate of its sample, `(n*m, c)` bool."""
        places = chains.support(self._mask, self.lengths, self.places).float()  # (n, m, a)
        named = torch.nn.functional.one_hot(self.actions + 1, self.classes + 1)[..., 1:]  # (n, a, c)
        return (places @ named.float() > 0).flatten(0, 1)

    @cached_property
    def counts(self) -> list[int]:
        """How many candidates each sample has, exactly."""
        if self.allowed is None or not chains.countable(self.slots, self.actions.shape[1]):
            return super().counts
        counts: list[int] = chains.count(self._mask, self.lengths, self.places).tolist()
        return counts

    def possible(self) -> Tensor:
        """Whether each sample has a candidate, `(n,)` bool."""
        return chains.possible(self._mask, self.lengths, self.places)

    def outward(self, labels: Tensor, sample: Tensor) -> Tensor:
        """The actions that the places `labels (rows, m)` of each row's `sample (rows,)` stand for."""
        actions = self.actions.index_select(0, sample).gather(1, labels.clamp(min=0))
        return torch.where(labels < 0, -1, actions)

    def _inward(self, values: Tensor) -> Tensor:
        """What `values (n, m, c)` say of actions, said of places, `(n, m, a)`."""
        index = self.actions.clamp(min=0)[:, None].expand(-1, self.slots, -1)
        return values.gather(2, index)

    @cached_property
    @outside_inference_mode
    def _mask(self) -> Tensor:
        """The places that each slot may show, `(n, m, a)` bool."""
        used = (torch.arange(self.slots, device=self.device) < self.lengths[:, None])[..., None]
        if self.allowed is None:
            return used.expand(-1, -1, self.actions.shape[1])
        return used & self._inward(self.allowed)


def _read_texts(texts: Sequence[Sequence[int]], classes: int) -> list[list[int]]:
    listed = as_list(texts, "a list of actions for each clip")
    return [_read_text(text, i, classes) for i, text in enumerate(listed)]


def _read_text(text: Sequence[int], number: int, classes: int) -> list[int]:
    row = whole_numbers(text, f"the actions of text {number}")
    actions: list[int] = row.tolist() if row.ndim == 1 else []
    if not actions or any(a == b for a, b in pairwise(actions)) or min(actions) < 0 or max(actions) >= classes:
        raise InputError(
            f"expected at least one action of 0 … {classes - 1}, neighbouring ones different, in text {number}, got "
            f"{shown(text)}; a frame does not say where an action ends and the same one begins: merge repetitions"
        )
    return actions


def _check_frames(texts: list[list[int]], frames: list[int]) -> None:
    for i, (text, length) in enumerate(zip(texts, frames, strict=True)):
        if length < len(text):
            raise InputError(
                f"expected a frame for each of the {len(text)} actions of text {i}, got {length} frames; "
                "shorten the text, or leave the clip out"
            )
