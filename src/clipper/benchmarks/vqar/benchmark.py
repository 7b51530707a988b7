"""The benchmark: names and relations of objects, learned from what an ontology says of them."""

from __future__ import annotations

import torch
from torch import Tensor

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.networks import NameMlp, RelationMlp
from clipper.benchmarks.registry import Benchmark, register
from clipper.benchmarks.vqar.knowledge import read_knowledge
from clipper.benchmarks.vqar.scenes import geometry
from clipper.benchmarks.vqar.task import RELATIONS, SceneTask, scene_task
from clipper.errors import InputError
from clipper.training import Classifiers, Encoders, Samples

SIDE = 28
"""Pixels of a picture's side."""


@register(
    "vqar",
    data=("scenes", "vqar"),
    encoders=("trainable", "auto", "features", "shuffled"),  # scenes have features instead of pixels
    engines=("semantic", "sampled", "dolphin", "scallop"),  # ised runs a rule; abl-sim compares all instances
)
def build(config: RunConfig) -> Benchmark:
    """Objects of which a class and a relation are known; what CRIC's ontology allows are the candidates."""
    knowledge = read_knowledge(config.data_root)
    if config.names > len(knowledge.names):
        raise InputError(
            f"expected names of at most {len(knowledge.names):,}, as many as VQAR has, got {config.names:,}"
        )
    task = scene_task(config.data, config.names, config.samples, config.seed, config.data_root)
    names, relations = (kind.stop - kind.start for kind in task.packing.kinds)
    features = task.packing.shapes[0][0]
    networks = {
        "name": NameMlp(names, features, *task.scale["name"]),
        "rel": RelationMlp(relations, features, *task.scale["rel"]),
    }

    def between(pairs: Tensor) -> Tensor:
        """How the boxes of both objects lie to one another; each box stands behind its object's features."""
        return geometry(pairs[:, features : features + 4], pairs[:, -4:])

    def pictures(ids: Tensor) -> Tensor:
        return drawings(task, ids)

    return Benchmark(
        Samples(task.inputs, task.candidates, gold=task.gold),
        Classifiers(networks, task.packing),
        task.held_out,
        encoder=Encoders({"name": torch.nn.Identity(), "rel": between}, task.packing),
        label_names=[*knowledge.names[:names], *knowledge.relations[:RELATIONS]],
        target_names=[sentence.text for sentence in task.told.sentences],
        slot="object or pair",
        pictures=pictures,
        note=f"{'These scenes are generated' if task.scenes.generated else 'These are the scenes of VQAR'}. Dark: the "
        "object whose name is asked for, or the second object of a relation; grey: the others.",
    )


def drawings(task: SceneTask, ids: Tensor) -> Tensor:
    """A drawing of the boxes for each slot of the samples `ids`, `(n, m, 1, side, side)` in 0 … 1.

    Dark: the object whose name is asked for, or the second object of a relation; grey: the others.
    """
    objects = task.told.objects[ids]  # (n, m-1)
    there = torch.cat([torch.ones_like(objects[:, :1]), objects], 1) >= 0  # (n, m)
    boxes = task.scenes.boxes[torch.cat([task.told.subject[ids][:, None], objects.clamp(min=0)], 1)]  # (n, m, 4)
    inside = _inside(boxes, there)  # (n, m boxes, side, side)
    m = there.shape[1]
    shade = torch.full((m, m), 0.35).fill_diagonal_(1.0)  # (slot, box)
    drawn = inside[:, None] * shade[None, :, :, None, None]  # (n, slot, box, side, side)
    return drawn.amax(2)[:, :, None]


def _inside(boxes: Tensor, there: Tensor) -> Tensor:
    """Which pixels lie in each box, in a frame that holds all boxes of a sample, `(n, boxes, side, side)` float."""
    low = torch.where(there[..., None], boxes[..., :2], torch.inf).amin(1, keepdim=True)
    high = torch.where(there[..., None], boxes[..., :2] + boxes[..., 2:], -torch.inf).amax(1, keepdim=True)
    size = 1.1 * (high - low).amax(2, keepdim=True)
    corner = (low + high - size) / 2
    centre = (torch.arange(SIDE) + 0.5) / SIDE
    first, last = (boxes[..., :2] - corner) / size, (boxes[..., :2] + boxes[..., 2:] - corner) / size
    across, down = ((centre >= first[..., [i]]) & (centre <= last[..., [i]]) for i in (0, 1))  # (n, boxes, side)
    return ((down[..., None] & across[..., None, :]) & there[..., None, None]).float()
