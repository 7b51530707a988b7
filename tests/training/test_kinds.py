"""Several classifiers through pruning, engines, training and metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clipper import Candidates, Clipper, ProximityGraph
from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.tables.ledger import Ledger
from clipper.engines import DolphinLoss, IsedLoss, SampledSemanticLoss, ScallopLoss, SemanticLoss
from clipper.errors import InputError
from clipper.proximity import ExactSearch, Pixels
from clipper.training import Classifiers, Encoders, EpochMetrics, Packing, Record, Samples, train
from tests.training.problems import same_weights

CLASSES = {"name": 3, "rel": 2}
NAMES, RELS = range(3), range(3, 5)


def scenes(samples: int = 24, seed: int = 0) -> tuple[dict[str, Tensor], Candidates, Tensor]:
    """A name and one or two relations each; it is known which names share a class, and that some relation is there."""
    generator = torch.Generator().manual_seed(seed)
    name = torch.randint(0, 3, (samples,), generator=generator)
    rel = torch.randint(3, 5, (samples, 2), generator=generator)
    rel[::2, 1] = -1
    gold = torch.cat([name[:, None], rel], 1)
    lists = [_candidates(row) for row in gold.tolist()]
    boxes, pairs = torch.randn(3, 4, generator=generator), torch.randn(5, 2, 3, generator=generator)
    inputs = {
        "name": 3 * boxes[gold.clamp(0, 2)] + 0.3 * torch.randn(samples, 3, 4, generator=generator),
        "rel": 3 * pairs[gold.clamp(min=0)] + 0.3 * torch.randn(samples, 3, 2, 3, generator=generator),
    }
    return inputs, Candidates.from_lists(lists, CLASSES), gold


def _candidates(row: list[int]) -> list[tuple[int, ...]]:
    names = [0, 1] if row[0] < 2 else [2]
    if row[2] < 0:
        return [(name, row[1]) for name in names]
    return [(name, a, b) for name in names for a in RELS for b in RELS if row[1] in (a, b)]


class Net(nn.Module):
    def __init__(self, inputs: int, width: int, classes: int) -> None:
        super().__init__()
        self.features, self.head = nn.Sequential(nn.Flatten(), nn.Linear(inputs, width)), nn.Linear(width, classes)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        embedding = self.features(inputs)
        return self.head(embedding).log_softmax(-1), embedding


def classifiers(packing: Packing, seed: int = 0) -> Classifiers:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Classifiers({"name": Net(4, 5, 3), "rel": Net(6, 7, 2)}, packing)


def packed(samples: int = 24) -> tuple[Samples, Packing, dict[str, Tensor]]:
    inputs, candidates, gold = scenes(samples)
    packing = Packing.of(inputs, candidates)
    return Samples(packing.pack(inputs, candidates.kind), candidates, gold), packing, inputs


def test_each_slot_is_read_by_the_network_of_its_kind() -> None:
    samples, packing, inputs = packed()
    model = classifiers(packing)
    log_probs, embedding = (part.detach().view(24, 3, -1) for part in model(samples.inputs.flatten(0, 1)))
    for sample in range(24):
        for slot in range(3):
            kind = int(samples.candidates.kind[sample, slot])
            if kind < 0:
                assert log_probs[sample, slot].exp().tolist() == pytest.approx([0.2] * 5)
                continue
            name, own = (("name", NAMES), ("rel", RELS))[kind]
            scores, vector = model.networks[name](inputs[name][sample, slot][None])
            assert torch.allclose(log_probs[sample, slot, list(own)], scores[0])
            assert float(log_probs[sample, slot].exp().sum()) == pytest.approx(1)
            assert torch.allclose(embedding[sample, slot, : vector.shape[1]], vector[0])
            assert not embedding[sample, slot, vector.shape[1] :].any()


def test_neighbours_by_packed_embeddings_are_those_scores() -> None:
    samples, packing, inputs = packed()
    kind = samples.candidates.kind
    own = {name: tensor.flatten(2) for name, tensor in inputs.items()}
    apart = ProximityGraph.from_embeddings(own, k=2, kind=kind, kinds=["name", "rel"])
    together = Clipper(k=2, encoder=Encoders({"name": Pixels(), "rel": Pixels()}, packing)).graph(
        samples.candidates, samples.inputs
    )
    assert torch.equal(apart.source, together.source)
    assert torch.equal(apart.target, together.target)
    ends = kind.flatten()[apart.source], kind.flatten()[apart.target]
    assert torch.equal(*ends)
    assert int(ends[0].min()) >= 0


class Counting(ExactSearch):
    """An exact search that notes whom it was asked for."""

    def find(self, queries: Any, *rest: Any) -> Any:
        seen.append((id(self), len(queries.values)))
        return super().find(queries, *rest)


seen: list[tuple[int, int]] = []


def test_each_kind_has_its_own_neighbour_search() -> None:
    samples, _, _ = packed()
    searches = {"name": Counting(), "rel": Counting()}
    seen.clear()
    graph = Clipper(search=searches).graph(samples.candidates, samples.inputs)
    sizes = [int((samples.candidates.kind == kind).sum()) for kind in (0, 1)]
    assert seen == [(id(searches["name"]), sizes[0]), (id(searches["rel"]), sizes[1])]
    plain = Clipper().graph(samples.candidates, samples.inputs)
    assert torch.equal(graph.target, plain.target)
    with pytest.raises(InputError, match="a search for each kind"):
        Clipper(search={"name": ExactSearch()}).graph(samples.candidates, samples.inputs)


ENGINES = {
    "semantic": SemanticLoss,
    "entropy": lambda: SemanticLoss(entropy=0.1),
    "sampled": lambda: SampledSemanticLoss(4),
    "dolphin": DolphinLoss,
    "scallop": lambda: ScallopLoss(k=3),
    "ised": lambda: IsedLoss(lambda row: (row[0] == 2, len(row), row[1])),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_trains_all_networks(engine: str) -> None:
    samples, packing, _ = packed()
    candidates = samples.candidates.batch(torch.arange(0, 24, 2)) if engine == "ised" else samples.candidates
    data = Samples(samples.inputs[::2], candidates) if engine == "ised" else samples
    model, before = classifiers(packing), classifiers(packing)
    history = train(model, data, ENGINES[engine](), clip=Clipper(), epochs=2, batch=8)
    assert all(torch.isfinite(torch.tensor(figures.loss)) for figures in history)
    for name in CLASSES:
        assert not same_weights(model.networks[name], before.networks[name])


@pytest.mark.parametrize("objective", ["paper", "exact", "joint", "random"])
def test_every_objective_learns_both_kinds(objective: Any) -> None:
    samples, packing, _ = packed(120)
    model = classifiers(packing)
    used = samples.candidates.kind >= 0
    held_out = samples.inputs[used], samples.gold[used]
    encoders = Encoders({"name": Pixels(), "rel": Pixels()}, packing)
    history = train(
        model, samples, SemanticLoss(), clip=Clipper(objective=objective, encoder=encoders), once=objective == "joint",
        optimiser=torch.optim.Adam(model.parameters(), lr=0.01), epochs=30, evaluate=held_out, evaluate_every=30,
    )  # fmt: skip
    last = history[-1]
    assert last.scores["rel"] > 0.9
    right = model(held_out[0])[0].argmax(-1) == held_out[1]
    for name, own in (("name", held_out[1] < 3), ("rel", held_out[1] >= 3)):
        assert last.scores[name] == pytest.approx(float(right[own].float().mean()))
    assert last.accuracy == pytest.approx(float(right.float().mean()))


def test_a_run_goes_on_from_its_checkpoint_and_uses_a_bank(tmp_path: Path) -> None:
    samples, packing, _ = packed()
    whole, parts = classifiers(packing), classifiers(packing)
    options = {"clip": Clipper(), "bank": 16, "batch": 8}
    train(whole, samples, SemanticLoss(), epochs=3, **options)
    train(parts, samples, SemanticLoss(), epochs=1, checkpoint=tmp_path / "run.pt", **options)
    again = classifiers(packing, seed=5)
    train(again, samples, SemanticLoss(), epochs=3, checkpoint=tmp_path / "run.pt", **options)
    assert same_weights(whole, again)


def test_accuracies_scores_are_kept_in_records(tmp_path: Path) -> None:
    figures = [
        EpochMetrics(1, 2.5, None, 0.8, 0.9, 1.0, 0.1),
        EpochMetrics(2, 2.0, 0.5, 0.8, 0.9, 1.0, 0.1, {"name": 0.25}),
    ]
    record = Record(RunConfig(), figures)
    record.write(tmp_path / "run.json")
    assert Record.read(tmp_path / "run.json") == record
    Ledger(tmp_path / "runs.jsonl").add(record)
    assert Ledger(tmp_path / "runs.jsonl").find(RunConfig()) == record


def test_what_does_not_fit_is_told() -> None:
    samples, packing, inputs = packed()
    with pytest.raises(InputError, match="each of the kinds name, rel"):
        Packing.of({"name": inputs["name"]}, samples.candidates)
    with pytest.raises(InputError, match="inputs of kind 'rel' of shape"):
        packing.pack({"name": inputs["name"], "rel": inputs["rel"][:5]}, samples.candidates.kind)
    with pytest.raises(InputError, match="one for each of the kinds"):
        Classifiers({"name": Net(4, 5, 3)}, packing)
    with pytest.raises(InputError, match="2 log-probabilities per instance from the network of kind 'rel'"):
        Classifiers({"name": Net(4, 5, 3), "rel": Net(6, 5, 3)}, packing)(samples.inputs.flatten(0, 1))
