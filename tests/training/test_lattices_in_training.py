"""Training on a lattice goes as training on its listed candidates."""

from __future__ import annotations

import pytest
import torch

from clipper import Candidates, Clipper, Lattice
from clipper.candidates.rules import SUM
from clipper.engines import DolphinLoss, IsedLoss, SampledSemanticLoss, ScallopLoss, SemanticLoss
from clipper.proximity import Pixels
from clipper.training import Samples, train
from tests.training.problems import TinyNet, problem, same_weights


def both(samples: int = 20) -> tuple[Samples, Samples]:
    listed = problem(samples)
    assert listed.targets is not None
    lattice = Lattice.from_rule(*SUM, listed.targets, 2, 4)
    return listed, Samples(listed.inputs, lattice, listed.gold, listed.targets)


@pytest.mark.parametrize("objective", [None, "exact", "paper"])
@pytest.mark.parametrize("how", ["trainable", "frozen", "once", "bank"])
def test_the_weights_end_up_the_same(objective, how):
    clip = Clipper(objective=objective, encoder=Pixels() if how in ("frozen", "once") else None) if objective else None
    networks = TinyNet(), TinyNet()
    for network, samples in zip(networks, both(), strict=True):
        train(
            network, samples, SemanticLoss(), clip=clip, once=how == "once" and clip is not None,
            bank=10 if how == "bank" and clip else 0, epochs=2, batch=8,
        )  # fmt: skip
    pairs = zip(networks[0].parameters(), networks[1].parameters(), strict=True)
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in pairs)


@pytest.mark.parametrize(
    "engine",
    [
        SemanticLoss(entropy=0.1),
        SampledSemanticLoss(2),
        DolphinLoss(outputs=Lattice.from_rule(*SUM, range(7), 2, 4)),
        DolphinLoss("dtkp-am", outputs=Candidates.from_rule(sum, range(7), 2, 4)),
        ScallopLoss(k=2, outputs=Lattice.from_rule(*SUM, range(7), 2, 4)),
        IsedLoss(sum, samples=20),
    ],
    ids=lambda engine: type(engine).__name__,
)
def test_every_engine_trains_with_pruning(engine):
    history = train(TinyNet(), both()[1], engine, clip=Clipper(), epochs=2, batch=8)
    assert len(history) == 2


def test_retained_is_the_mean_share_of_the_samples():
    listed, lattice = both()
    figures = train(TinyNet(), lattice, SemanticLoss(), clip=Clipper(encoder=Pixels()), once=True, epochs=1, batch=8)[0]
    kept = Clipper().prune(listed.candidates, listed.inputs).candidates
    assert figures.retained == pytest.approx(float((kept.offsets.diff() / listed.candidates.offsets.diff()).mean()))
    assert figures.gold is not None
    assert 0 < figures.gold <= 1


def test_a_checkpoint_knows_its_lattice(tmp_path):
    _, lattice = both()
    assert isinstance(lattice.candidates, Lattice)
    allowed = lattice.candidates.support.clone()
    narrowed = Samples(lattice.inputs, lattice.candidates.restrict(allowed), lattice.gold, lattice.targets)
    assert lattice.fingerprint() != narrowed.fingerprint()
    first, again = TinyNet(), TinyNet()
    train(first, lattice, SemanticLoss(), epochs=2, batch=8, checkpoint=tmp_path / "run.pt")
    train(again, lattice, SemanticLoss(), epochs=2, batch=8, checkpoint=tmp_path / "run.pt")
    assert same_weights(first, again)
