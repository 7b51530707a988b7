"""Votes: every candidate of a sample votes for a label of each image; the network learns the shares of the votes."""

from __future__ import annotations

from typing import Any

import torch

from clipper.benchmarks.race.heat import Heat
from clipper.benchmarks.race.with_clipper import all_candidates
from clipper.errors import require


def votes(heat: Heat) -> None:
    """Train on the shares as soft labels, with Snorkel's loss for them."""
    classification: Any = require("snorkel.classification", peer="snorkel")
    settings, candidates = heat.settings, all_candidates(heat)
    inputs = heat.inputs.flatten(0, 1)
    soft = candidates.marginals(candidates.zeros()).flatten(0, 1)  # (n*m, c): all candidates count alike
    optimiser = torch.optim.Adam(heat.scores.parameters(), lr=settings["lr"])
    while True:
        for ids in torch.split(torch.randperm(len(inputs)), settings["batch"]):
            optimiser.zero_grad()
            classification.cross_entropy_with_probs(heat.scores(inputs[ids]), soft[ids]).backward()
            torch.nn.utils.clip_grad_norm_(heat.scores.parameters(), settings["clip"])
            optimiser.step()
            heat.step(len(ids) / heat.inputs.shape[1])
