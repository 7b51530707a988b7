"""LTNtorch and `guard`; `test_peers.py` runs this where LTNtorch is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from clipper import Candidates
from tests.integrations.digit_sums import compare, digit_network, digit_sums, run_page
from tests.integrations.environments import peer_module

ltn = peer_module("ltn")

from clipper.integrations.ltn import guard  # noqa: E402

EPOCHS = 100


def trained(seed: int, kept: Candidates | None = None) -> float:
    """The page's code, trained with the schedule of LTNtorch's own example; without `kept`, with its plain rule."""
    digits, network = digit_sums(seed), digit_network(seed)
    named = digits.candidates if kept is None else kept
    names = run_page("python ltntorch", network=network, images=digits.images, kept=named)
    if kept is None:
        totals = torch.tensor(digits.totals)
        names["survives"] = lambda sample, a, b: torch.eq(a.value + b.value, totals[sample.value])
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    for epoch in range(EPOCHS):
        p = (1, 2, 4, 6)[4 * epoch // EPOCHS]
        for ids in torch.randperm(len(digits.images)).split(32):
            (1 - names["satisfaction"](ids, p)).backward()
            optimiser.step(), optimiser.zero_grad()
    return digits.accuracy(network)


@pytest.mark.slow
def test_the_code_on_the_page_learns_what_ltntorch_alone_does_not() -> None:
    def alone(seed: int) -> float:
        return trained(seed)

    def with_clipper(seed: int) -> float:
        return trained(seed, digit_sums(seed).kept)

    assert compare("LTNtorch, SUM-2, n = 100", alone, with_clipper) > 40


def satisfied(condition: Callable[..., torch.Tensor], slots: int, samples: torch.Tensor) -> torch.Tensor:
    """How far an arbitrary predicate of labels holds for some labels that a condition admits, `(samples,)`."""
    truth = torch.rand(100, slots, 4, generator=torch.Generator().manual_seed(0))
    label = [ltn.Variable(f"label_{slot}", torch.arange(4)) for slot in range(slots)]
    sample = ltn.Variable("sample", samples)
    predicate = ltn.Predicate(
        func=lambda s, *ys: torch.stack([truth[s[:, 0], i, y[:, 0]] for i, y in enumerate(ys)]).prod(0)
    )
    exists = ltn.Quantifier(ltn.fuzzy_ops.AggregPMean(p=2), quantifier="e")
    return exists(label, predicate(sample, *label), cond_vars=[sample, *label], cond_fn=condition).value


def test_a_guard_of_all_candidates_is_the_plain_rule() -> None:
    for slots in (1, 2, 3):
        gold = torch.randint(4, (20, slots), generator=torch.Generator().manual_seed(slots))
        totals = gold.sum(1)
        candidates = Candidates.from_rule(sum, totals, slots, 4)
        ids = torch.tensor([3, 19, 0, 7])
        guarded = satisfied(guard(candidates), slots, ids)
        plain = satisfied(lambda s, *ys: sum(y.value for y in ys) == totals[s.value], slots, ids)  # noqa: B023
        assert torch.equal(guarded, plain)
        narrow = satisfied(guard(candidates.draw(1)), slots, ids)
        assert not torch.equal(narrow, plain) or slots == 1
