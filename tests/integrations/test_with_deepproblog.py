"""DeepProbLog and facts; `test_peers.py` runs this where DeepProbLog is."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout

import pytest
import torch
from torch import nn

from clipper import Candidates
from tests.integrations.digit_sums import Digits, compare, digit_network, digit_sums, run_page
from tests.integrations.environments import peer_module

peer_module("deepproblog")

from deepproblog.dataset import DataLoader, QueryDataset  # noqa: E402
from deepproblog.engines import ExactEngine  # noqa: E402
from deepproblog.model import Model  # noqa: E402
from deepproblog.network import Network  # noqa: E402
from deepproblog.query import Query  # noqa: E402
from deepproblog.train import train_model  # noqa: E402
from problog.logic import Constant, Term  # noqa: E402

PLAIN = """
nn(digits, [X], Y, [0,1,2,3,4,5,6,7,8,9]) :: digit(X, Y).
addition(Total, X, Y) :- digit(X, A), digit(Y, B), Total is A + B.
"""


def model_of(program: str, network: nn.Module, digits: Digits) -> Model:
    wrapped = Network(nn.Sequential(network, nn.Softmax(-1)), "digits", batching=True)
    wrapped.optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    model = Model(program, [wrapped], load=False)
    model.set_engine(ExactEngine(model), cache=True)
    model.add_tensor_source("train", {(Constant(i),): image for i, image in enumerate(digits.images.flatten(0, 1))})
    return model


def queries(firsts: list[int]) -> list[Query]:
    """One for each sample: its first argument, then its two images."""
    images = [[Term("tensor", Term("train", Constant(2 * i + j))) for j in (0, 1)] for i in range(len(firsts))]
    return [
        Query(
            Term("addition", Constant(first), Term("a"), Term("b")),
            dict(zip((Term("a"), Term("b")), pair, strict=True)),
        )
        for first, pair in zip(firsts, images, strict=True)
    ]


def with_facts(kept: Candidates) -> str:
    program: str = run_page("python deepproblog", kept=kept)["program"]
    return program


def trained(seed: int, program: str, firsts: list[int]) -> float:
    digits, network = digit_sums(seed), digit_network(seed)
    loader = DataLoader(QueryDataset(queries(firsts)), batch_size=4, seed=seed)
    with redirect_stdout(sys.stderr):
        train_model(model_of(program, network, digits), loader, 10, verbose=0)
    return digits.accuracy(network)


def test_the_facts_on_the_page_have_the_probability_of_the_candidates() -> None:
    digits, network = digit_sums(0, samples=5), digit_network(0)
    drawn = digits.candidates.draw(3)
    log_probs = network(digits.images.flatten(0, 1)).log_softmax(-1).view(5, 2, 10)
    results = model_of(with_facts(drawn), network, digits).solve(queries(list(range(5))))
    found = torch.stack([next(iter(result.result.values())) for result in results])
    torch.testing.assert_close(found, drawn.log_probability(log_probs).exp())


@pytest.mark.slow
def test_the_code_on_the_page_learns_what_deepproblog_alone_does_not() -> None:
    def alone(seed: int) -> float:
        return trained(seed, PLAIN, digit_sums(seed).totals)

    def with_clipper(seed: int) -> float:
        kept = digit_sums(seed).kept
        return trained(seed, with_facts(kept), list(range(kept.samples)))

    assert compare("DeepProbLog, SUM-2, n = 100", alone, with_clipper) > 30
