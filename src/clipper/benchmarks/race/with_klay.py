"""KLay: a compiled circuit for the probability of the sum, trained as in KLay's own experiment."""

from __future__ import annotations

import torch

from clipper.benchmarks.bench_loss import SumCircuit
from clipper.benchmarks.race.heat import Heat


def circuit_loss(heat: Heat) -> None:
    """Train on −log of the probability of the sum."""
    settings, slots = heat.settings, heat.inputs.shape[1]
    loss = SumCircuit(slots, settings["semiring"])
    optimiser = torch.optim.AdamW(heat.scores.parameters(), lr=settings["lr"], weight_decay=settings["weight_decay"])
    for ids in heat.batches(settings["batch"]):
        log_probs = heat.scores(heat.inputs[ids].flatten(0, 1)).unflatten(0, (len(ids), slots))
        optimiser.zero_grad()
        loss(log_probs, heat.targets[ids]).mean().backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        heat.step(len(ids))
