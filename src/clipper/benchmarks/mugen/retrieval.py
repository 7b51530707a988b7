"""Retrieval: which of a few texts a video shows (VTR), and which of a few videos a text is about (TVR)."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from clipper.benchmarks.mugen.task import ClipTask
from clipper.candidates import Alignments
from clipper.errors import InputError
from clipper.training.adapters import predict

CHOICES = (3, 10)
"""Texts to choose from for each video, and videos for each text: chance is one in three, and one in ten. The paper does
not say how many it has; its batches are of three."""


def scores(log_probs: Tensor, lengths: Tensor, texts: Sequence[Hashable], groups: Tensor) -> Tensor:
    """How well each video of a group fits each text of it, `(g, M, M)`: log P(text | frames) per frame.

    Args:
        log_probs: what the classifier says of the frames, `(n, m, c)`.
        lengths: frames of each clip, `(n,)`.
        texts: of each clip.
        groups: `(g, M)`: which clips are compared with one another.
    """
    size = groups.shape[1]
    video = groups.repeat_interleave(size, 1).flatten()
    text = groups.repeat(1, size).flatten()
    told: list[tuple[int, ...]] = [tuple(texts[i]) for i in text.tolist()]
    fits = torch.tensor([len(t) for t in told]) <= lengths[video]
    pairs = fits.nonzero()[:, 0]
    lattice = Alignments.from_texts(
        [told[i] for i in pairs.tolist()], lengths[video[pairs]].tolist(), log_probs.shape[2]
    )
    found = lattice.log_probability(log_probs[video[pairs], : lattice.slots].double()) / lengths[video[pairs]]
    result = torch.full((len(video),), -math.inf, dtype=torch.float64)
    return result.index_copy(0, pairs, found).view(-1, size, size)


def retrieved(table: Tensor) -> tuple[float, float]:
    """VTR and TVR: the shares of rows and columns of each `(g, M, M)` whose one maximum is on the diagonal.

    Examples:
        >>> retrieved(torch.tensor([[[3.0, 1.0], [4.0, 2.0]]]))
        (0.5, 0.5)
    """
    own = table.diagonal(dim1=1, dim2=2)  # (g, M)
    shares = [((table >= own.unsqueeze(axis)).sum(axis) == 1).double().mean() for axis in (2, 1)]
    return float(shares[0]), float(shares[1])


def dealt(texts: Sequence[Hashable], choices: int, seed: int = 0) -> Tensor:
    """Groups of clips with different texts, `(g, M)`; what does not fill a group is left out.

    Examples:
        >>> dealt([(0,), (0,), (1,), (1,)], choices=2).tolist()
        [[0, 3], [1, 2]]
    """
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(seed)).tolist()
    groups: list[dict[Hashable, int]] = []
    for clip in order:
        home = next((group for group in groups if len(group) < choices and texts[clip] not in group), None)
        if home is None:
            home = {}
            groups.append(home)
        home[texts[clip]] = clip
    full = [list(group.values()) for group in groups if len(group) == choices]
    if not full:
        raise InputError(f"expected clips with at least {choices} different texts to choose from, got {len(texts)}")
    return torch.tensor(full)


@dataclass(frozen=True, eq=False)
class ClipExam:
    """What a classifier is worth on clips that it has not learned from: call it with the classifier."""

    task: ClipTask
    """With inputs as the classifier wants them."""
    choices: tuple[int, ...] = CHOICES

    def __call__(self, classifier: nn.Module) -> dict[str, float]:
        """`accuracy` of the frames, where gold is known; `vtr3` and `tvr3` of three choices, and so on."""
        log_probs = predict(classifier, self.task.inputs)
        candidates, gold = self.task.candidates, self.task.gold
        found = {} if gold is None else {"accuracy": float((log_probs.argmax(2) == gold)[gold >= 0].double().mean())}
        for choices in self.choices:
            groups = dealt(candidates.targets, choices)
            vtr, tvr = retrieved(scores(log_probs, candidates.lengths, candidates.targets, groups))
            found |= {f"vtr{choices}": vtr, f"tvr{choices}": tvr}
        return found
