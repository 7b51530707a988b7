"""What holds for every engine."""

from __future__ import annotations

import pytest
import torch

from clipper.engines import (
    AblSim,
    Context,
    DolphinLoss,
    IsedLoss,
    SampledSemanticLoss,
    ScallopLoss,
    SemanticLoss,
)
from clipper.errors import InputError
from tests.engine_oracles import OUTPUTS

TARGETS = torch.tensor([3, 1, 5, 3, 6])
CANDIDATES = OUTPUTS.batch(TARGETS)
EMBEDDINGS = torch.rand(5, 2, 3, generator=torch.Generator().manual_seed(1))
WITH_TARGETS = Context(targets=TARGETS)

ENGINES = {
    "semantic": (SemanticLoss, None),
    "sampled": (lambda **options: SampledSemanticLoss(9, **options), None),
    "scallop": (lambda **options: ScallopLoss(2, outputs=OUTPUTS, **options), WITH_TARGETS),
    "scallop, all": (lambda **options: ScallopLoss(None, outputs=OUTPUTS, **options), WITH_TARGETS),
    "damp": (lambda **options: DolphinLoss(outputs=OUTPUTS, **options), WITH_TARGETS),
    "dtkp-am": (lambda **options: DolphinLoss("dtkp-am", outputs=OUTPUTS, **options), WITH_TARGETS),
    "ised": (lambda **options: IsedLoss(sum, **options), None),
    "abl": (AblSim, Context(embeddings=EMBEDDINGS)),
}
every_engine = pytest.mark.parametrize(("build", "context"), ENGINES.values(), ids=ENGINES)


def _log_probs(dtype=torch.float32):
    return torch.randn(5, 2, 4, generator=torch.Generator().manual_seed(0), dtype=dtype).log_softmax(-1)


@every_engine
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_loss_per_sample_comes_out_in_the_type_of_the_log_probs(build, context, dtype):
    losses = build()(_log_probs(dtype), CANDIDATES, context)
    assert losses.shape == (5,)
    assert losses.dtype == dtype
    assert losses.isfinite().all()


@every_engine
def test_descending_the_gradient_lowers_the_loss(build, context):
    logits = _log_probs().requires_grad_()
    optimiser = torch.optim.Adam([logits], lr=0.1)
    engine = build()
    losses = []
    for _ in range(40):
        loss = engine(logits.log_softmax(-1), CANDIDATES, context).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


@every_engine
@pytest.mark.parametrize("entropy", [0.0, 0.4])
def test_second_derivatives_are_right_or_refused(build, context, entropy):
    log_probs = _log_probs(torch.float64).requires_grad_()
    direction = torch.randn(log_probs.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)

    def slope(at, **options):
        losses = build(entropy=entropy)(at, CANDIDATES, context)
        return torch.autograd.grad(losses.sum(), at, **options)[0]

    try:
        found = torch.autograd.grad((slope(log_probs, create_graph=True) * direction).sum(), log_probs)[0]
    except InputError as error:
        assert "second derivatives are not supported by this loss" in str(error)  # noqa: PT017
        return
    step = 1e-5 * direction
    expected = (slope(log_probs + step) - slope(log_probs - step)) / 2e-5
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)


@every_engine
def test_the_entropy_of_the_posterior_is_added(build, context):
    log_probs = _log_probs()
    plain = build()(log_probs, CANDIDATES, context)
    regularised = build(entropy=0.4)(log_probs, CANDIDATES, context)
    torch.testing.assert_close(regularised, plain + 0.4 * CANDIDATES.entropy(log_probs))


@every_engine
def test_nan_is_refused_with_the_sample_that_has_it(build, context):
    log_probs = _log_probs()
    log_probs[3] = torch.nan
    with pytest.raises(InputError, match="NaN in slot 0 of sample 3"):
        build()(log_probs, CANDIDATES, context)


@every_engine
def test_an_engine_survives_saving_and_loading(build, context, tmp_path):
    engine, resumed = build(), build()
    engine(_log_probs(), CANDIDATES, context)
    torch.save(engine.state_dict(), tmp_path / "engine.pt")
    resumed.load_state_dict(torch.load(tmp_path / "engine.pt", weights_only=True))
    expected = engine(_log_probs(), CANDIDATES, context)
    assert torch.equal(resumed(_log_probs(), CANDIDATES, context), expected)


@every_engine
def test_without_gradients_the_value_is_the_same(build, context):
    log_probs = _log_probs()
    with_gradient = build()(log_probs.clone().requires_grad_(), CANDIDATES, context)
    with torch.no_grad():
        assert torch.equal(build()(log_probs, CANDIDATES, context), with_gradient)


def test_engines_say_how_they_are_set():
    assert repr(SemanticLoss(entropy=0.5)) == "SemanticLoss(entropy=0.5)"
