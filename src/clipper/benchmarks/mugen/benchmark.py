"""The benchmark: frames learn their actions from the order in which a text tells them."""

from __future__ import annotations

from torch import Tensor

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.mugen.problem import learned_and_held_out
from clipper.benchmarks.mugen.retrieval import ClipExam
from clipper.benchmarks.mugen.task import Middle
from clipper.benchmarks.mugen.world import ACTIONS, sentence
from clipper.benchmarks.networks import ClipCnn
from clipper.benchmarks.registry import Benchmark, Registration, register
from clipper.training import Samples


@register(
    "align",
    data={"clips": ("ClipCnn",), "mugen": ("ClipCnn",)},
    encoders=(*Registration.encoders, "middle"),
    engines=("semantic", "sampled", "dolphin", "scallop"),  # ised runs a rule; abl-sim compares all frames
)
def build(config: RunConfig) -> Benchmark:
    """Clips of at most `slots` frames; all alignments of each with its text are the candidates."""
    learned, held_out = learned_and_held_out(config.data, config.samples, config.slots, config.seed, config.data_root)

    def pictures(ids: Tensor) -> Tensor:
        return learned.inputs[ids, :, :3]

    return Benchmark(
        Samples(learned.inputs, learned.candidates, gold=learned.gold),
        ClipCnn(len(ACTIONS)),
        ClipExam(held_out),
        encoder=Middle(),
        label_names=ACTIONS,
        target_names=[sentence(text) for text in learned.candidates.targets],
        slot="frame",
        pictures=pictures,
    )
