"""First derivatives are right however they are asked for; second derivatives are refused, never silently wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from clipper import Candidates, CandidateSet, Lattice
from clipper.candidates import Alignments, Formula, has_label
from clipper.candidates.rules import SUM
from clipper.errors import InputError
from tests.machines import log_probs_for

Ask = Callable[[Tensor], Tensor]


def _formula() -> Formula:
    pytest.importorskip("klay", reason="KLay is not installed (extra circuits)")
    return Formula.from_propositions([has_label(0, 3) | has_label(1, 2)] * 3, slots=2, classes=4)


SETS: dict[str, Callable[[], CandidateSet]] = {
    "listed": lambda: Candidates.from_rule(sum, [3, 0, 5], 2, 4),
    "lattice": lambda: Lattice.from_rule(*SUM, [3, 0, 5], 2, 4),
    "alignments": lambda: Alignments.from_texts([(0,), (1, 2), (3, 0)], 2, 4),
    "formula": _formula,
}
ASKED = [
    *((name, "log_probability") for name in SETS),
    *((name, "output_probabilities") for name in SETS if name != "alignments"),
    ("listed", "entropy"),
]


@pytest.fixture(params=ASKED, ids=" ".join)
def asked(request: pytest.FixtureRequest) -> tuple[Ask, Tensor]:
    name, method = request.param
    candidates = SETS[name]()
    log_probs = log_probs_for(candidates, 0).double().requires_grad_()
    return getattr(candidates, method), log_probs


def test_a_second_derivative_is_refused_in_words(asked: tuple[Ask, Tensor]) -> None:
    ask, log_probs = asked
    for loss in (ask(log_probs).sum(), ask(log_probs).pow(2).sum()):
        with pytest.raises(InputError, match=r"expected a first derivative, got create_graph=True.* not supported"):
            torch.autograd.grad(loss, log_probs, create_graph=True)


def test_a_first_derivative_is_that_of_finite_differences(asked: tuple[Ask, Tensor]) -> None:
    ask, log_probs = asked
    assert torch.autograd.gradcheck(ask, (log_probs,))


def test_first_derivatives_may_be_asked_for_twice_or_computed_again(asked: tuple[Ask, Tensor]) -> None:
    ask, log_probs = asked
    values = ask(log_probs)
    (first,) = torch.autograd.grad(values.sum(), log_probs, retain_graph=True)
    (again,) = torch.autograd.grad(values.sum(), log_probs)
    assert torch.equal(first, again)
    for reentrant in (True, False):
        log_probs.grad = None
        checkpoint(ask, log_probs, use_reentrant=reentrant).sum().backward()
        assert torch.equal(log_probs.grad, first)


@pytest.mark.parametrize("name", ["lattice", "alignments", "formula"])
def test_the_entropy_of_a_set_that_is_not_listed_has_second_derivatives(name: str) -> None:
    candidates = SETS[name]()
    log_probs = log_probs_for(candidates, 0).double().requires_grad_()
    assert torch.autograd.gradgradcheck(candidates.entropy, (log_probs,))
