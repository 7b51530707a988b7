"""Alignments: which frame shows which action, if a clip shows the actions of its text in order.

All texts have the same lattice: the first action of the text, then the second, and so on, each for one frame or more.
So all clips share one chain of **places**, the positions in a text, and each clip has a row with the action of each
place.

A path through the chain visits the places 0 … a-1 in order and stays at each for one slot or more. At each place, it
stays or moves on, so no table of states is needed. Sums are computed in logarithms, because the probability of a long
clip underflows. Sets of places are stored as the bits of an integer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor

from clipper.arguments import as_list, shown, whole_numbers, widened
from clipper.candidates.base import Impossible, gold_labels, outside_inference_mode
from clipper.candidates.derivatives import first_derivative
from clipper.candidates.graph_building import BUDGET, state_graph_of
from clipper.candidates.kinds import Classes, kinds_of
from clipper.candidates.lattice import Lattice
from clipper.candidates.lattice_sums import centred
from clipper.candidates.rules import PLACES
from clipper.candidates.task import targets_and_lengths
from clipper.errors import InputError


@dataclass(frozen=True, eq=False, repr=False)
class Alignments(Lattice):
    """A `Lattice` of clips and their texts; build it with `from_texts`.

    It has the same candidates as a state machine whose states are the actions so far, but time and memory do not grow
    with the number of different texts, so it works for long clips.

    Examples:
        >>> clips = Alignments.from_texts([(2, 0), (2, 1, 2)], frames=[4, 128], classes=3)
        >>> clips
        Alignments(2 samples, 128 slots, 3 classes, 379 states)
        >>> clips.counts  # one change at 3 places, two at 127
        [3, 8001]
        >>> clips.span(0, 1).to_candidates().labels[:, :4].tolist()
        [[2, 2, 2, 0], [2, 2, 0, 0], [2, 0, 0, 0]]

    Attributes:
        actions: `(n, a)`: the action of each place in a sample's text; -1 past its end.
    """

    PER_SAMPLE: ClassVar[tuple[str, ...]] = (*Lattice.PER_SAMPLE, "actions")

    actions: Tensor = field(kw_only=True)

    @classmethod
    @outside_inference_mode
    def from_texts(
        cls,
        texts: Sequence[Sequence[int]],
        frames: int | Sequence[int],
        classes: Classes,
        *,
        impossible: Impossible = "refuse",
    ) -> Alignments:
        """The alignments of each clip's frames with its text.

        Args:
            texts: the actions of each of the `n` clips, in order; neighbouring actions differ.
            frames: the number of frames of each clip.
            classes: the number of different actions.
            impossible: "refuse" a text with more actions than frames, or "keep" its clip without candidates.

        Returns:
            The alignments of all clips.

        Raises:
            InputError: if a clip has fewer frames than actions, or an action occurs twice in a row.
        """
        actions = kinds_of(classes)
        if len(actions) > 1:
            raise InputError(f"expected one number of actions as classes, got {shown(classes)}")
        clips = enumerate(as_list(texts, "a list of actions for each clip"))
        checked = [read_text(text, f"text {i}", actions[0].stop) for i, text in clips]
        if isinstance(frames, Sequence) and len(frames) != len(checked):
            raise InputError(
                f"expected a text and a number of frames for each clip, got {len(checked)} and {len(frames)}"
            )
        places, lengths = targets_and_lengths([len(text) for text in checked], frames)
        for i, (text, length) in enumerate(zip(checked, lengths, strict=True)):
            if length < len(text) and impossible != "keep":
                raise InputError(
                    f"expected a frame for each of the {len(text)} actions of text {i}, got {length} frames; "
                    "shorten the text, or leave the clip out"
                )
        longest = max(map(len, checked))
        graph, template = state_graph_of(PLACES, places, lengths, kinds_of(longest), None, BUDGET, impossible)
        rows = [[*text, *[-1] * (longest - len(text))] for text in checked]
        return cls(template, actions, graph=graph, actions=torch.tensor(rows))

    @property
    def places(self) -> Tensor:
        """How many actions each text has, `(n,)`."""
        return (self.actions >= 0).sum(1)

    @property
    def contents(self) -> tuple[Tensor, ...]:
        """The tensors that distinguish this lattice from others."""
        return *super().contents, self.actions

    def _log_probability(self, log_probs: Tensor) -> Tensor:
        """As for every set, but computed in logarithms, because long clips underflow."""
        weights = self._inward(log_probs)
        if self.allowed is not None:
            weights = torch.where(self._mask, weights, -torch.inf)
        weights, shift = centred(self.graph, self.template, widened(weights))
        return chain_log_sum(weights, self.lengths, self.places) + shift

    def _template_outputs(self, _: Tensor) -> Tensor:
        """Raises an error: alignments have no outputs, because a text may be read in clips of any length."""
        raise InputError(
            "expected the outputs' lattice of a rule, got alignments; build the pairs of clips and texts to compare "
            "with Alignments.from_texts, and ask for their log_probability"
        )

    def contains(self, gold: Tensor) -> Tensor:
        """Whether each sample's gold labels `(n, m)` are among its candidates, `(n,)` bool."""
        gold = gold_labels(gold, self)
        place = torch.nn.functional.pad(gold[:, 1:] != gold[:, :-1], (1, 0)).cumsum(1)  # (n, m)
        shown = self.actions.gather(1, place.clamp(max=self.actions.shape[1] - 1))
        right = (shown == gold) & (gold >= 0) & (place < self.places[:, None])
        if self.allowed is not None:
            right &= self.allowed.gather(2, gold.clamp(0, self.classes - 1)[..., None])[..., 0]
        all_right = (right | (self.kind < 0)).all(1)
        return all_right & (place.gather(1, self.lengths[:, None] - 1)[:, 0] == self.places - 1)

    @cached_property
    @outside_inference_mode
    def support(self) -> Tensor:
        """The labels that each instance takes in some candidate of its sample, `(n*m, c)` bool."""
        if self._fits_bits:
            places = chain_support(self._mask, self.lengths, self.places)  # (n, m, a)
        else:
            places = super().support.view(self.samples, self.slots, -1)
        named = torch.nn.functional.one_hot(self.actions + 1, self.classes + 1)[..., 1:]  # (n, a, c)
        return (places.float() @ named.float() > 0).flatten(0, 1)

    @cached_property
    def counts(self) -> list[int]:
        """How many candidates each sample has, exactly."""
        if self.allowed is None or not chain_countable(self.slots, self.actions.shape[1]):
            return super().counts
        counts: list[int] = chain_count(self._mask, self.lengths, self.places).tolist()
        return counts

    def possible(self) -> Tensor:
        """Whether each sample has a candidate, `(n,)` bool."""
        return chain_possible(self._mask, self.lengths, self.places) if self._fits_bits else super().possible()

    @property
    def _fits_bits(self) -> bool:
        """Whether a set of places fits the bits of a number."""
        return self.actions.shape[1] <= MOST_PLACES

    def outward(self, labels: Tensor, sample: Tensor) -> Tensor:
        """The actions that the places `labels (rows, m)` of each row's `sample (rows,)` stand for."""
        actions = self.actions.index_select(0, sample).gather(1, labels.clamp(min=0))
        return torch.where(labels < 0, -1, actions)

    def _inward(self, values: Tensor) -> Tensor:
        """The `values (n, m, c)` of actions, as values of the places that stand for them, `(n, m, a)`."""
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


def read_text(text: Sequence[int], name: str, classes: int) -> list[int]:
    """The actions of a text, checked; `name` is what messages call it."""
    row = whole_numbers(text, f"the actions of {name}")
    actions: list[int] = row.tolist() if row.ndim == 1 else []
    if not actions or any(a == b for a, b in pairwise(actions)) or min(actions) < 0 or max(actions) >= classes:
        raise InputError(
            f"expected at least one action of 0 … {classes - 1}, neighbouring ones different, in {name}, got "
            f"{shown(text)}; frames cannot show where an action ends and the same one begins: merge repetitions"
        )
    return actions


MOST_PLACES = 62
"""Places that fit into the bits of a whole number."""


def chain_log_sum(weights: Tensor, slots: Tensor, places: Tensor) -> Tensor:
    """log Σ over all paths of the product of their weights, `(n,)`; differentiable in `weights`.

    Args:
        weights: the logarithm of the weight of each place in each slot, `(n, m, a)`.
        slots: the number of slots of each sample, `(n,)`.
        places: the number of places of each sample, `(n,)`.
    """
    return _LogSum.apply(weights, slots, places)  # type: ignore[no-any-return, no-untyped-call]


def chain_possible(allowed: Tensor, slots: Tensor, places: Tensor) -> Tensor:
    """Whether there is a path through the `allowed (n, m, a)` places, `(n,)` bool; at most `MOST_PLACES` places."""
    bits = _bits(allowed)
    reach, result = bits[0] & 1, bits[0] & 1
    for slot in range(1, len(bits)):
        reach = (reach | reach << 1) & bits[slot]
        result = torch.where(slots > slot, reach, result)
    return result & 1 << (places - 1) != 0


def chain_support(allowed: Tensor, slots: Tensor, places: Tensor) -> Tensor:
    """The places that lie on some path in each slot, `(n, m, a)` bool; arguments as for `chain_possible`."""
    bits = _bits(allowed)
    before, on_a_way = [bits[0] & 1], torch.zeros_like(bits)
    for own in bits[1:]:
        before.append((before[-1] | before[-1] << 1) & own)
    end, last = 1 << (places - 1), slots - 1
    behind = torch.zeros_like(slots)
    for slot in reversed(range(len(bits))):
        behind = torch.where(last == slot, end, behind | behind >> 1) & before[slot]
        on_a_way[slot] = behind
    number = torch.arange(allowed.shape[2], device=allowed.device)
    return (on_a_way.T[..., None] >> number & 1).bool()


def chain_count(allowed: Tensor, slots: Tensor, places: Tensor) -> Tensor:
    """The number of paths, `(n,)`. It must be below 2^62; check `chain_countable` first."""
    rows = allowed.permute(1, 2, 0).long()  # (m, a, n)
    ways = rows.new_zeros(rows.shape[1] + 1, rows.shape[2])
    ways[1] = rows[0, 0]
    sample = torch.arange(len(slots), device=slots.device)
    result = torch.where(slots == 1, ways[places, sample], 0)
    for slot in range(1, len(rows)):
        ways[1:] = (ways[1:] + ways[:-1]) * rows[slot]
        result = torch.where(slots == slot + 1, ways[places, sample], result)
    return result


def chain_countable(slots: int, places: int) -> bool:
    """Whether the number of paths fits into a 64-bit integer.

    Examples:
        >>> chain_countable(128, 12), chain_countable(500, 30)
        (True, False)
    """
    return places <= MOST_PLACES and math.comb(slots - 1, min(places, slots) - 1) * 2 < 2**62 and slots * places > 0


def _bits(allowed: Tensor) -> Tensor:
    """The allowed places of each slot as bits, `(m, n)`."""
    weight = 1 << torch.arange(allowed.shape[2], device=allowed.device)
    return (allowed * weight).sum(2).T.contiguous()


class _LogSum(torch.autograd.Function):
    """The gradient is the posterior of each place in each slot, computed from the last slot to the first."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, slots: Tensor, places: Tensor) -> Tensor:
        before = _before(weights.detach().permute(1, 2, 0).contiguous())  # (m, a + 1, n)
        total = before[slots - 1, places, torch.arange(len(slots), device=slots.device)]
        if ctx.needs_input_grad[0]:
            ctx.kept = before, total, slots, places
        return total

    @staticmethod
    @first_derivative
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        before, total, slots, places = ctx.kept
        grad = torch.where(total == -torch.inf, 0, grad)  # a sample without a path has no gradient
        return _flow(before, slots, places, grad).permute(2, 0, 1), None, None


def _before(rows: Tensor) -> Tensor:
    """The summed weight of all paths to each place in each slot, `(m, a + 1, n)`; the first row stays at -inf."""
    slots, places, samples = rows.shape
    result = rows.new_full((slots, places + 1, samples), -torch.inf)
    result[0, 1] = rows[0, 0]
    for slot in range(1, slots):
        own = torch.logaddexp(result[slot - 1, 1:], result[slot - 1, :-1], out=result[slot, 1:])
        own.add_(rows[slot])
    return result


def _flow(before: Tensor, slots: Tensor, places: Tensor, grad: Tensor) -> Tensor:
    """`grad (n,)` times the share of the paths that are at each place in each slot, `(m, a, n)`.

    It uses only differences of neighbouring logarithms, so no share exceeds 1 even if all logarithms are very low.
    """
    lead = before[:, 1:] - before[:, :-1]  # the log-odds of having stayed at a place against having come to it
    stayed, went = (torch.sigmoid(part).nan_to_num_(0.0) for part in (lead, -lead))  # NaN where no path can be
    result = before.new_zeros(lead.shape)
    result[slots - 1, places - 1, torch.arange(len(grad), device=grad.device)] = grad
    for slot in reversed(range(1, len(result))):
        result[slot - 1].addcmul_(result[slot], stayed[slot - 1])
        result[slot - 1, :-1].addcmul_(result[slot, 1:], went[slot - 1, 1:])
    return result
