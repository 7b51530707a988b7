"""Clipper alone: joint inference and then training, or the exact loss on all candidates."""

from __future__ import annotations

import torch

from clipper.benchmarks.race.heat import Heat
from clipper.candidates import Candidates, CandidateSet
from clipper.engines import SemanticLoss
from clipper.proximity import Outlines, embed
from clipper.pruning import infer


def joint_inference(heat: Heat) -> None:
    """Infer the labels of all samples together, and train on the candidates that are left."""
    _train(heat, kept_by_inference(heat))


def exact_loss(heat: Heat) -> None:
    """Train on all candidates."""
    _train(heat, all_candidates(heat))


def all_candidates(heat: Heat) -> Candidates:
    """The candidates of every sample."""
    return Candidates.from_rule(sum, heat.targets.tolist(), heat.inputs.shape[1], heat.classes)


def kept_by_inference(heat: Heat) -> Candidates:
    """The candidates that joint inference keeps; its verdict goes into `heat.notes`."""
    posterior = infer(all_candidates(heat), embed(Outlines(), heat.inputs), seed=heat.seed)
    heat.notes |= {"verdict": posterior.verdict, "expected_accuracy": round(float(posterior.expected_accuracy), 4)}
    return posterior.prune().candidates


def _train(heat: Heat, candidates: CandidateSet) -> None:
    loss, slots = SemanticLoss(), heat.inputs.shape[1]
    optimiser = torch.optim.AdamW(heat.scores.parameters(), lr=heat.settings["lr"])
    for ids in heat.batches(heat.settings["batch"]):
        log_probs = heat.scores(heat.inputs[ids].flatten(0, 1)).unflatten(0, (len(ids), slots))
        optimiser.zero_grad()
        loss(log_probs, candidates.batch(ids)).mean().backward()
        optimiser.step()
        heat.step(len(ids))
