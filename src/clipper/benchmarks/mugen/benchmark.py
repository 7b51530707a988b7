"""The MUGEN benchmark: classify the frames of clips, given only the order of actions in a text; measured by retrieval.

Retrieval asks which of a few texts a video shows (VTR), and which of a few videos a text is about (TVR).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.data.sources import find_or_fetch
from clipper.benchmarks.mugen.clips import Clips, draw_clips
from clipper.benchmarks.mugen.files import MUGEN_FILES, read_clips
from clipper.benchmarks.mugen.world import ACTIONS, sentence
from clipper.benchmarks.networks import ClipCnn
from clipper.benchmarks.registry import Benchmark, Registration, register
from clipper.candidates import Alignments
from clipper.errors import InputError
from clipper.proximity import Outlines
from clipper.training import Samples
from clipper.training.adapters import predict

HELD_OUT = 200
"""Number of test clips."""
CHOICES = (3, 10)
"""How many texts each video is compared with, and how many videos each text. A random guess is right one time in three,
and one time in ten. The paper does not say how many it uses; its batches have three clips."""
_SEED = 2**31 - 1
"""Seed of the drawn test clips; no run uses it."""
_SHORTEST = 16
"""The fewest frames of a drawn clip."""


@register(
    "align",
    data={"clips": ("ClipCnn",), "mugen": ("ClipCnn",)},
    encoders=(*Registration.encoders, "middle"),
    engines=("semantic", "sampled", "dolphin", "scallop"),  # ised runs a rule; abl-sim compares all frames
)
def build(config: RunConfig) -> Benchmark:
    """Clips of at most `slots` frames; all alignments of each with its text are the candidates."""
    learned, held_out = _clips(config)
    return Benchmark(
        clip_samples(learned),
        ClipCnn(len(ACTIONS)),
        Retrieval(clip_samples(held_out), held_out.texts),
        encoder=centre_outlines,
        label_names=ACTIONS,
        target_names=[sentence(text) for text in learned.texts],
        slot="frame",
        pictures=lambda ids: learned.frames[ids] / 255,
    )


def _clips(config: RunConfig) -> tuple[Clips, Clips]:
    """Clips of at most `slots` frames for training, and others for testing."""
    if config.data == "clips":
        return _drawn(config.samples, config.seed, config.slots), _drawn(HELD_OUT, _SEED, config.slots)
    folder = find_or_fetch(MUGEN_FILES, config.data_root).folder
    learned = read_clips(folder, "train", clips=config.samples, frames=config.slots, seed=config.seed)
    if len(learned) < config.samples:
        raise InputError(
            f"expected {config.samples} clips to learn from, got {len(learned)} in {folder}; ask for fewer"
        )
    return learned, read_clips(folder, "test", clips=HELD_OUT, frames=config.slots)


@lru_cache(maxsize=4)
def _drawn(clips: int, seed: int, frames: int) -> Clips:
    """Draw clips; cached, because the rows of a table train on the same ones."""
    return draw_clips(clips, seed, frames=(min(_SHORTEST, frames), frames))


def clip_samples(clips: Clips) -> Samples:
    """The clips as samples whose slots are frames.

    Examples:
        >>> samples = clip_samples(draw_clips(5, frames=(16, 20)))
        >>> samples.inputs.shape[2:], bool(samples.candidates.contains(samples.gold).all())
        (torch.Size([4, 32, 32]), True)
    """
    candidates = Alignments.from_texts(clips.texts, clips.lengths.tolist(), len(ACTIONS))
    return Samples(with_motion(clips.frames), candidates, gold=clips.gold)


def with_motion(frames: Tensor) -> Tensor:
    """From frames `(n, m, 3, height, width)` in bytes to colours and motion `(n, m, 4, height, width)` in [0, 1]."""
    inputs = frames.new_empty(*frames.shape[:2], 4, *frames.shape[3:], dtype=torch.float32)
    torch.div(frames, 255, out=inputs[:, :, :3])
    grey = inputs[:, :, :3].mean(2)
    inputs[:, 0, 3] = 0.5  # the first frame shows no motion
    inputs[:, 1:, 3] = (grey[:, 1:] - grey[:, :-1]) / 2 + 0.5
    return inputs


def centre_outlines(inputs: Tensor) -> Tensor:
    """An encoder that needs no training: `Outlines` of the middle of a frame, where the character is.

    Each colour and the motion have their own histograms. Without them, a gem looks like a coin, and a fall like a jump.

    Examples:
        >>> centre_outlines(torch.rand(7, 4, 32, 32)).shape
        torch.Size([7, 4096])
    """
    width = inputs.shape[3]
    return Outlines(cells=8, colours=True)(inputs[..., width // 4 : width - width // 4])


@dataclass(frozen=True, eq=False)
class Retrieval:
    """Evaluates a classifier on test clips: call it with the classifier.

    Attributes:
        clips: the clips as samples.
        texts: what each clip shows, in order.
    """

    clips: Samples
    texts: Sequence[tuple[int, ...]]

    def __call__(self, classifier: nn.Module) -> dict[str, float]:
        """`accuracy` of the frames, where gold is known; `vtr3` and `tvr3` of three choices, and so on."""
        log_probs = predict(classifier, self.clips.inputs)
        lengths, gold = self.clips.candidates.lengths, self.clips.gold
        found = {} if gold is None else {"accuracy": float((log_probs.argmax(2) == gold)[gold >= 0].double().mean())}
        for choices in CHOICES:
            groups = grouped(self.texts, choices)
            vtr, tvr = retrieved(scores(log_probs, lengths, self.texts, groups))
            found |= {f"vtr{choices}": vtr, f"tvr{choices}": tvr}
        return found


def scores(log_probs: Tensor, lengths: Tensor, texts: Sequence[tuple[int, ...]], groups: Tensor) -> Tensor:
    """Score of each video of a group with each text of the group, `(g, M, M)`: log P(text | frames) per frame.

    Args:
        log_probs: the classifier's output for the frames, `(n, m, c)`.
        lengths: frames of each clip, `(n,)`.
        texts: of each clip.
        groups: `(g, M)`: which clips are compared with one another.
    """
    size = groups.shape[1]
    video = groups.repeat_interleave(size, 1).flatten()
    text = groups.repeat(1, size).flatten()
    compared = [texts[i] for i in text.tolist()]
    fits = torch.tensor([len(t) for t in compared]) <= lengths[video]
    pairs = fits.nonzero()[:, 0]
    lattice = Alignments.from_texts(
        [compared[i] for i in pairs.tolist()], lengths[video[pairs]].tolist(), log_probs.shape[2]
    )
    found = lattice.log_probability(log_probs[video[pairs], : lattice.slots].double()) / lengths[video[pairs]]
    result = torch.full((len(video),), -math.inf, dtype=torch.float64)
    return result.index_copy(0, pairs, found).view(-1, size, size)


def retrieved(table: Tensor) -> tuple[float, float]:
    """VTR and TVR: the shares of rows and columns of each `(g, M, M)` whose only maximum is on the diagonal.

    Examples:
        >>> retrieved(torch.tensor([[[3.0, 1.0], [4.0, 2.0]]]))
        (0.5, 0.5)
    """
    own = table.diagonal(dim1=1, dim2=2)  # (g, M)
    shares = [((table >= own.unsqueeze(axis)).sum(axis) == 1).double().mean() for axis in (2, 1)]
    return float(shares[0]), float(shares[1])


def grouped(texts: Sequence[Hashable], choices: int, seed: int = 0) -> Tensor:
    """Groups of clips with different texts, `(g, M)`; clips that do not fill a group are left out.

    Examples:
        >>> grouped([(0,), (0,), (1,), (1,)], choices=2).tolist()
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
