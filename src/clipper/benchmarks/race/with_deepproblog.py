"""DeepProbLog's example of MNIST addition."""

from __future__ import annotations

from typing import Any

import torch

from clipper.benchmarks.race.heat import Heat
from clipper.errors import require


def alone(heat: Heat) -> None:
    """Train on the probability of the sum, by the exact engine."""
    dataset: Any = require("deepproblog.dataset", peer="deepproblog")
    engines: Any = require("deepproblog.engines", peer="deepproblog")
    logic: Any = require("problog.logic", peer="problog")
    model_of: Any = require("deepproblog.model", peer="deepproblog").Model
    network_of: Any = require("deepproblog.network", peer="deepproblog").Network
    query_of: Any = require("deepproblog.query", peer="deepproblog").Query
    training: Any = require("deepproblog.train", peer="deepproblog")
    settings, slots = heat.settings, heat.inputs.shape[1]

    network = network_of(torch.nn.Sequential(heat.scores, torch.nn.Softmax(-1)), "digits", batching=True)
    network.optimizer = torch.optim.Adam(heat.scores.parameters(), lr=settings["lr"])
    model = model_of(program(slots, heat.classes), [network], load=False)
    model.set_engine(engines.ExactEngine(model), cache=True)
    term, constant = logic.Term, logic.Constant
    images = enumerate(heat.inputs.flatten(0, 1))
    model.add_tensor_source("train", {(constant(i),): image for i, image in images})

    places = [term(f"p{slot}") for slot in range(slots)]
    queries = [
        query_of(
            term("addition", *places, constant(int(total))),
            {place: term("tensor", term("train", constant(slots * i + j))) for j, place in enumerate(places)},
        )
        for i, total in enumerate(heat.targets)
    ]
    loader = dataset.DataLoader(dataset.QueryDataset(queries), settings["batch"], seed=heat.seed)
    run = training.TrainObject(model)
    run.hooks.append((1, lambda _: heat.step(settings["batch"])))
    run.train(loader, 1 + settings["samples_seen"] // len(queries), verbose=0)


def program(slots: int, classes: int) -> str:
    """The sum of a number of digits as a logic program.

    Examples:
        >>> print(program(2, 3))
        nn(digits, [X], Y, [0,1,2]) :: digit(X, Y).
        addition(X0, X1, Total) :- digit(X0, Y0), digit(X1, Y1), Total is Y0 + Y1.
    """
    labels = ",".join(map(str, range(classes)))
    images = ", ".join(f"X{slot}" for slot in range(slots))
    digits = ", ".join(f"digit(X{slot}, Y{slot})" for slot in range(slots))
    total = " + ".join(f"Y{slot}" for slot in range(slots))
    return (
        f"nn(digits, [X], Y, [{labels}]) :: digit(X, Y).\n"
        f"addition({images}, Total) :- {digits}, Total is {total}."
    )  # fmt: skip
