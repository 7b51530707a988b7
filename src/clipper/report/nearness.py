"""What a run's page judges nearness by: the encoder that the run had, or the nearest to it that is at hand."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.mugen.task import ClipTask, Middle
from clipper.benchmarks.parts import embeddings_of, encoder_name, network_of
from clipper.errors import FileError
from clipper.proximity import Pixels, embed
from clipper.training import Samples as Task
from clipper.training.checkpoint import load_weights


def nearness(
    config: RunConfig, task: Task | ClipTask, embeddings: Tensor | None = None, checkpoint: Path | None = None
) -> tuple[Tensor, str]:
    """Embeddings `(n, m, d)` of a run's samples, and a sentence that says where they come from.

    Args:
        config: the run's.
        task: its samples.
        embeddings: taken if given.
        checkpoint: the run's, for an encoder that was trained; may be missing.

    Examples:
        >>> from clipper.benchmarks.datasets import digits
        >>> from clipper.benchmarks.drawing import draw
        >>> from clipper.benchmarks.sum import SUM
        >>> task = draw(digits(), SUM, samples=4, slots=2)
        >>> nearness(RunConfig(encoder="pixels"), task)[1]
        "What lies near is judged by the run's frozen encoder, pixels."
    """
    judged = "What lies near is judged by"
    if embeddings is not None:
        return embeddings, f"{judged} the embeddings given for this page."
    frozen = embeddings_of(config, task)
    if frozen is not None:
        return frozen, f"{judged} the run's frozen encoder, {encoder_name(config)}."
    if checkpoint is not None and checkpoint.exists():
        return trained(config, task, checkpoint), f"{judged} the run's own network as its last epoch left it."
    absent = f"The run's own network is not at hand: {judged.lower()}"
    if isinstance(task, ClipTask):
        return embed(Middle(), task.inputs), f"{absent} the middle of the frames."
    return embed(Pixels(), task.inputs), f"{absent} the raw pixels."


def trained(config: RunConfig, task: Task | ClipTask, checkpoint: Path) -> Tensor:
    """The embeddings `(n, m, d)` of the network whose weights a checkpoint holds."""
    network = network_of(config, task.candidates.classes).eval()
    try:
        network.load_state_dict(load_weights(checkpoint))
    except RuntimeError as error:
        raise FileError(f"{checkpoint} holds the weights of another network than the run's ({error})") from error
    return embed(lambda images: network(images)[1], task.inputs)
