"""What runs on a GPU runs on a pretended one: the same results, nothing of the CPU's in between, and few waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from clipper import Candidates, Clipper, Lattice, ProximityGraph, decode, infer, prune, rules
from clipper.arguments import widest_float
from clipper.candidates import Alignments, CandidateSet, Formula
from clipper.candidates.propositions import has_label
from clipper.candidates.rules import SUM
from clipper.engines import AblSim, Context, DolphinLoss, IsedLoss, SampledSemanticLoss, ScallopLoss, SemanticLoss
from clipper.errors import InputError
from clipper.proximity import Pool
from clipper.pruning import Pruning
from clipper.training import Samples, train
from tests.device import CPU, DEVICE, PretendTensor, waits, without_double

pytest.importorskip("klay", reason="formulas need the extra circuits")
SLOTS, CLASSES = 3, 10


@dataclass(frozen=True)
class Scene:
    """Samples of every sort, on one device."""

    gold: Tensor
    embeddings: Tensor
    log_probs: Tensor
    listed: Candidates
    lattice: Lattice
    formula: Formula
    ragged: Candidates
    scenes: Candidates
    """Of two kinds of label."""
    addition: CandidateSet
    clips: Alignments
    largest: Candidates
    """Of samples with more than ten proofs, and with fewer."""
    outputs: Candidates
    order: Tensor

    @classmethod
    @cache
    def of(cls, samples: int = 64, seed: int = 0) -> Scene:
        """On the CPU: points around a centre for each label."""
        generator = torch.Generator().manual_seed(seed)
        gold = torch.randint(CLASSES, (samples, SLOTS), generator=generator)
        centres = torch.randn(CLASSES, 16, generator=generator)
        noise = torch.randn(samples, SLOTS, 16, generator=generator)
        sums, lengths = gold.sum(1), [1 + i % SLOTS for i in range(samples)]
        formulas = [has_label(0, a) | (has_label(1, b) & has_label(2, c)) for a, b, c in gold[:8].remainder(4).tolist()]
        pairs = [[(a % 4, 4 + b % 3), (b % 4, 4 + a % 3)] for a, b, _ in gold.tolist()]
        return cls(
            gold,
            centres[gold] + noise / 3,
            torch.randn(samples, SLOTS, CLASSES, generator=generator).log_softmax(-1),
            Candidates.from_rule(sum, sums, SLOTS, CLASSES),
            Lattice.from_rule(*SUM, targets=sums, slots=SLOTS, classes=CLASSES),
            Formula.from_propositions(formulas, SLOTS, 4),
            Candidates.from_rule(sum, [int(row[:n].sum()) for row, n in zip(gold, lengths, strict=True)], lengths, 10),
            Candidates.from_lists(pairs, classes={"name": 4, "rel": 3}),
            rules.addition(1).candidates((gold[:, 0] + gold[:, 1]).tolist(), slots=2, classes=CLASSES),
            Alignments.from_texts([[1, 2], [3, 0, 1]], frames=[3, 3], classes=4),
            Candidates.from_rule(max, [8, 9, 3], slots=2, classes=CLASSES),
            Candidates.from_rule(sum, range(9 * SLOTS + 1), SLOTS, CLASSES),
            torch.randperm(samples, generator=generator),
        )

    def to(self, device: torch.device) -> Scene:
        """The same on another device."""
        return replace(self, **{entry.name: getattr(self, entry.name).to(device) for entry in fields(self)})


Path = Callable[[Scene], Any]


def graph(**options: Any) -> Path:
    return lambda scene: edges_of(ProximityGraph.from_embeddings(scene.embeddings, **options))


def edges_of(found: ProximityGraph) -> list[Tensor]:
    return [found.source, found.target, found.distance]


def of_kinds(by_kind: bool) -> Path:
    def run(scene: Scene) -> list[Tensor]:
        table = scene.embeddings[:, :2]
        embeddings = {"rel": table, "name": table} if by_kind else table
        return edges_of(ProximityGraph.from_embeddings(embeddings, kind=scene.scenes.kind, kinds=["name", "rel"]))

    return run


def in_a_pool(scene: Scene) -> list[Tensor]:
    some = scene.order[:20]
    pool = Pool(scene.embeddings, samples=some)
    return edges_of(ProximityGraph.from_embeddings(scene.embeddings[some], pool=pool))


def merged(scene: Scene) -> list[Tensor]:
    return edges_of(ProximityGraph.from_embeddings([scene.embeddings, scene.embeddings.round()], k=2))


def clip(which: str, ties: bool = False, **options: Any) -> Path:
    """Take a batch, of ids that a loader gives, and prune it."""

    def run(scene: Scene) -> tuple[Tensor, ...]:
        candidates: CandidateSet = getattr(scene, which)
        ids = Scene.of().order[: candidates.samples] % candidates.samples  # on the CPU
        embeddings = scene.embeddings[scene.order[: candidates.samples], : candidates.slots]
        kept = Clipper(**options)(candidates.batch(ids), embeddings.round() if ties else embeddings)
        return kept.contents

    return run


def along_edges(which: str, objective: Any, **options: Any) -> Path:
    def run(scene: Scene) -> list[Any]:
        found: Pruning[Any] = prune(getattr(scene, which), scene.embeddings, objective, **options)
        return [found.edges, found.allowed, found.certified, found.bound, found.gold_retained(scene.gold)]

    return run


def loss(engine: Callable[[Scene], nn.Module], which: str = "listed") -> Path:
    """Losses and their gradient."""

    def run(scene: Scene) -> list[Tensor]:
        candidates: CandidateSet = getattr(scene, which).batch(slice(0, 12))
        some = slice(0, candidates.samples)
        scores = scene.log_probs[some, : candidates.slots].clone().requires_grad_()
        context = Context(scene.gold[some].sum(1), scene.embeddings[some])
        losses = engine(scene)(scores.log_softmax(-1), candidates, context)
        losses.sum().backward()
        assert scores.grad is not None
        return [losses.detach(), scores.grad]

    return run


def asked(which: str) -> Path:
    """Every question that a candidate set answers."""

    def run(scene: Scene) -> list[Any]:
        own: CandidateSet = getattr(scene, which)
        log_probs = scene.log_probs[: own.samples, : own.slots, : own.classes].log_softmax(-1)
        found: list[Any] = [own.support, own.kind, own.lengths, own.possible(), own.counts, own.log_counts]
        found += [own.log_probability(log_probs), own.entropy(log_probs), own.marginals(log_probs)]
        for rows in (own.top_k(log_probs, 3), own.draw(2, seed=1), own.draw(2, 1, log_probs), own.to_candidates(10**6)):
            found += [rows.labels, rows.offsets]
        found += [own.contains(own.first), *own.restrict(own.support).contents]
        return found if which == "clips" else [*found, own.output_probabilities(log_probs)]

    return run


def decoded(scene: Scene) -> list[Tensor]:
    listed, without = decode(scene.log_probs, scene.lattice), decode(scene.log_probs, outputs=scene.outputs)
    return [listed.labels, listed.probability, listed.runner_up, without.labels, without.output_probability]


def trained(which: str = "listed", **options: Any) -> Path:
    """Two steps of a training loop, and what it measured."""

    def run(scene: Scene) -> list[Any]:
        torch.manual_seed(0)
        candidates: CandidateSet = getattr(scene, which)
        network = nn.Sequential(nn.Linear(16, CLASSES), nn.LogSoftmax(-1)).to(scene.gold.device)
        samples = Samples(scene.embeddings, candidates, scene.gold, scene.gold.sum(1))
        given = {"clip": Clipper(), "embeddings": scene.embeddings} | options
        held_out = scene.embeddings.flatten(0, 1), scene.gold.flatten()
        history = train(network, samples, SemanticLoss(), epochs=1, batch=32, evaluate=held_out, **given)
        last = history[-1]
        return [last.loss, last.accuracy, last.retained, last.gold, *weights_of(network)]

    return run


class Embedding(nn.Module):
    """A classifier that gives its own embedding, too."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(16, 8), nn.Linear(8, CLASSES)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        embedding = self.body(inputs)
        return self.head(embedding).log_softmax(-1), embedding


def trained_by_its_own(scene: Scene) -> list[Any]:
    torch.manual_seed(0)
    network = Embedding().to(scene.gold.device)
    samples = Samples(scene.embeddings, scene.ragged)
    train(network, samples, SemanticLoss(entropy=0.1), clip=Clipper(k=2), epochs=1, batch=32)
    return weights_of(network)


def weights_of(network: nn.Module) -> list[Tensor]:
    return [weight.detach() for weight in network.parameters()]


PRUNED = 10
"""Waits for a pruned batch, whatever is pruned and how."""
SEARCHED = 80
"""Waits for labels forbidden at random, one after another."""
PATHS: dict[str, tuple[Path, int]] = {
    "a graph of nearest neighbours": (graph(k=1), 3),
    "a graph of three neighbours each": (graph(k=3), 4),
    "a graph within a radius": (graph(k=None, radius=2.0), 4),
    "a graph of mutual neighbours": (graph(k=3, mutual=True), 5),
    "a graph of the closer half": (graph(k=3, share=0.5), 4),
    "a graph by the cosine": (graph(k=3, metric="cosine"), 5),
    "a graph by a function": (graph(k=2, metric=torch.cdist), 7),
    "a graph of two kinds": (of_kinds(False), 8),
    "a graph of two kinds by name": (of_kinds(True), 8),
    "a graph into a pool": (in_a_pool, 6),
    "a graph of two encoders": (merged, 9),
    **{
        f"a {which} batch pruned by {objective}, k={k}": (
            clip(which, k=k, objective=objective),
            SEARCHED if (which, objective) == ("lattice", "random") else PRUNED,
        )
        for which in ("listed", "lattice", "formula", "ragged", "scenes")
        for objective in ("exact", "paper", "random")
        for k in (1, 3)
        if (which, objective) != ("formula", "random")
    },
    "a batch pruned along mutual neighbours": (clip("listed", k=3, mutual=True), PRUNED),
    "a batch pruned within a radius": (clip("listed", radius=1.5), PRUNED),
    "a batch pruned along many edges": (clip("listed", k=6, objective="paper"), PRUNED),
    "a batch with ties, pruned by exact": (clip("listed", ties=True, k=3), PRUNED),
    "a batch with ties, pruned by paper": (clip("listed", ties=True, k=3, objective="paper"), PRUNED),
    "a lattice with ties, pruned by exact": (clip("lattice", ties=True, k=3), PRUNED),
    "a pruning of a list": (along_edges("listed", "exact"), 8),
    "a pruning of a list as printed": (along_edges("listed", "paper"), 8),
    "a random pruning of a list": (along_edges("listed", "random", count=100), 9),
    "a pruning of a lattice": (along_edges("lattice", "exact"), 10),
    "a pruning of a lattice as printed": (along_edges("lattice", "paper"), 10),
    "semantic loss": (loss(lambda _: SemanticLoss(entropy=0.1)), 3),
    "semantic loss of a lattice": (loss(lambda _: SemanticLoss(entropy=0.1), "lattice"), 5),
    "semantic loss of some": (loss(lambda _: SampledSemanticLoss(4)), 5),
    "scallop, three proofs": (loss(lambda scene: ScallopLoss(3, outputs=scene.outputs)), 13),
    "scallop, all proofs": (loss(lambda _: ScallopLoss(None), "largest"), 25),
    "dolphin, all proofs": (loss(lambda scene: DolphinLoss(outputs=scene.outputs)), 5),
    "dolphin, some proofs of a lattice": (loss(lambda s: DolphinLoss("dtkp-am", outputs=s.outputs), "lattice"), 8),
    "ised": (loss(lambda _: IsedLoss(sum, samples=20)), 10),
    "abl": (loss(lambda _: AblSim(beam=20)), 12 + 10),
    "a list": (asked("listed"), 14),
    "a lattice": (asked("lattice"), 40),
    "a formula": (asked("formula"), 45),
    "samples of different lengths": (asked("ragged"), 14),
    "two kinds of label": (asked("scenes"), 14),
    "an addition": (asked("addition"), 40),
    "alignments": (asked("clips"), 40),
    "decode": (decoded, 11),
    "training by a frozen encoder": (trained(), 34),
    "training once pruned": (trained(once=True), 23),
    "training with a memory bank": (trained(bank=32), 44),
    "training on a lattice": (trained("lattice"), 44),
    "training by its own embedding": (trained_by_its_own, 40),
}


@cache
def expected(name: str) -> list[Any]:
    """What a path gives on the CPU."""
    return values_of(PATHS[name][0](Scene.of()))


def values_of(found: Any) -> list[Any]:
    return [entry.held if isinstance(entry, PretendTensor) else entry for entry in found]


def on_the_device(path: Path, scene: Scene) -> list[Any]:
    """What a path gives there: all of it has to stay there."""
    found = path(scene)
    assert all(isinstance(entry, PretendTensor) for entry in found if isinstance(entry, Tensor)), "left the device"
    return values_of(found)


def assert_equal(found: list[Any], wanted: list[Any], tolerance: float) -> None:
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        if isinstance(theirs, Tensor):
            torch.testing.assert_close(ours.to(theirs.dtype), theirs, rtol=tolerance, atol=tolerance)
        else:
            assert ours == pytest.approx(theirs, rel=tolerance)


@pytest.mark.parametrize("name", PATHS)
def test_a_path_gives_the_same_on_a_device_and_seldom_waits(name: str) -> None:
    path, most = PATHS[name]
    assert_equal(on_the_device(path, Scene.of().to(DEVICE)), expected(name), tolerance=1e-6)
    scene = Scene.of().to(DEVICE)  # a new one; what is made once for every batch is made by now
    with waits() as counted:
        path(scene)
    assert sum(counted.values()) <= most, counted.most_common()


@pytest.mark.parametrize("name", PATHS)
def test_a_path_needs_no_double_precision(name: str) -> None:
    path, _ = PATHS[name]
    with without_double():
        assert_equal(on_the_device(path, Scene.of().to(DEVICE)), expected(name), tolerance=1e-4)


INFERRED = 600
"""Waits for a pool of 100 samples."""


def inferred(scene: Scene) -> list[Any]:
    posterior = infer(scene.listed, scene.embeddings)
    kept = posterior.prune()
    return [posterior.labels, posterior.marginals, posterior.suspicion, posterior.verdict, kept.keep, kept.allowed]


@pytest.mark.slow
def test_joint_inference_gives_the_same_on_a_device() -> None:
    wanted = values_of(inferred(Scene.of(100)))
    assert wanted[3] == "joint"
    with waits() as counted:
        found = on_the_device(inferred, Scene.of(100).to(DEVICE))
    assert_equal(found[:3] + found[4:], wanted[:3] + wanted[4:], tolerance=0)
    assert found[3] == "joint"
    assert sum(counted.values()) <= INFERRED, counted.most_common()


@pytest.mark.slow
def test_joint_inference_needs_no_double_precision() -> None:
    wanted = values_of(inferred(Scene.of()))
    with without_double():
        found = on_the_device(inferred, Scene.of().to(DEVICE))
    assert found[3] == wanted[3]
    assert_equal(found[:3] + found[4:], wanted[:3] + wanted[4:], tolerance=1e-3)


FAULTS = {
    "candidates.table.offsets_of": "a listed batch pruned by exact, k=1",
    "candidates.packed._cells": "semantic loss",
    "candidates.lattice_sums.weights_of": "semantic loss of a lattice",
    "candidates.state_graph.viable": "a lattice",
    "candidates.circuits._first": "a formula",
    "candidates.alignment._bits": "alignments",
    "candidates.packed.ranked": "a list",
    "proximity.neighbours.kth_smallest": "a graph of three neighbours each",
    "proximity.neighbours.by_row_then_value": "a graph within a radius",
    "proximity.instances._directions": "a graph by the cosine",
    "proximity.instances._place_in_pool": "a graph into a pool",
    "pruning.consistency.edge_rejects": "a pruning of a lattice",
    "pruning.closed_form.occurrences": "a listed batch pruned by exact, k=3",
    "pruning.closed_form._tied_by_products": "a listed batch pruned by paper, k=3",
    "pruning.lattice_search.labels_left": "a lattice batch pruned by exact, k=1",
    "pruning.pairs.pad": "joint inference",
    "pruning.factors.pad": "joint inference",
    "pruning.joint.search.zero_messages": "joint inference",
    "engines.scallop._sums_over_sets": "scallop, three proofs",
    "engines.outputs.cost_of_others": "dolphin, all proofs",
    "engines.ised.equal_rows": "ised",
    "engines.abl._cosine_distance": "abl",
    "engines.proof_circuits.pad": "scallop, all proofs",
    "training.adapters._spread": "training by its own embedding",
    "training.schedule.widened": "training by a frozen encoder",
    "training.metrics.predict": "training by a frozen encoder",
    "labelling.decode.candidate_log_probs": "decode",
}
"""A function in whose result the device is forgotten, and a path that goes through it. `rules` makes no tensors."""


def misplaced(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, but it leaves its tensors on the CPU."""

    def run(*args: Any, **options: Any) -> Any:
        return tree_map(lambda x: x.cpu() if isinstance(x, Tensor) else x, function(*args, **options))

    return run


@pytest.mark.parametrize("fault", FAULTS)
def test_a_tensor_on_the_wrong_device_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    room, name = fault.rsplit(".", 1)
    module = import_module(f"clipper.{room}")
    path = inferred if FAULTS[fault] == "joint inference" else PATHS[FAULTS[fault]][0]
    scene = Scene.of(12 if path is inferred else 64).to(DEVICE)
    monkeypatch.setattr(module, name, misplaced(getattr(module, name)))
    with pytest.raises((RuntimeError, InputError, AssertionError), match=r"mixes|one device|left the device"):
        on_the_device(path, scene)


def test_a_wait_is_counted_where_it_happens() -> None:
    scene = Scene.of().to(DEVICE)
    with waits() as counted:
        scene.listed.batch([0, 1])
    ((place, times),) = counted.items()
    assert (place.split(":")[0], times) == ("candidates/table.py", 1)


WAITING: dict[str, Callable[[Tensor], object]] = {
    "item": lambda x: x[0].item(),
    "tolist": lambda x: x.tolist(),
    "bool": lambda x: bool(x[0] > 0),
    "int": lambda x: int(x.sum()),
    "an index without dimensions": lambda x: x[x.argmax()],
    "nonzero": lambda x: x.nonzero(),
    "a mask": lambda x: x[x > 1],
    "values for a mask": lambda x: x.clone().masked_fill_(x > 1, 0).index_put_((x > 1,), x[:2]),
    "masked_select": lambda x: x.masked_select(x > 1),
    "unique": lambda x: x.unique(),
    "unique rows": lambda x: x[:, None].unique(dim=0),
    "unique_consecutive": lambda x: x.unique_consecutive(),
    "repeat_interleave": lambda x: x.repeat_interleave(x.long()),
    "bincount": lambda x: x.long().bincount(),
    "isin": lambda x: torch.isin(x, x),
    "equal": lambda x: torch.equal(x, x),
    "cpu": lambda x: x.cpu(),
    "a copy": lambda x: torch.zeros(3).copy_(x),
}


@pytest.mark.parametrize("name", WAITING)
@pytest.mark.parametrize("inference", [False, True])
def test_what_waits_is_counted_once(name: str, inference: bool) -> None:
    values = torch.tensor([1.0, 2.0, 3.0], device=DEVICE)
    with torch.inference_mode(inference), waits() as counted:
        WAITING[name](values)
    assert sum(counted.values()) == 1


SILENT: dict[str, Callable[[Tensor], object]] = {
    "arithmetic": lambda x: (x + 1) @ x,
    "one number for a mask": lambda x: x.clone().index_put_((x > 1,), torch.tensor(0.0, device=DEVICE)),
    "an assignment": lambda x: x.clone().__setitem__(x > 1, 5.0),
    "whole numbers as indices": lambda x: x[x.long() - 1],
    "repeat_interleave of a known size": lambda x: x.repeat_interleave(x.long(), output_size=6),
    "sorting": lambda x: x.sort().values.cumsum(0).argsort(),
    "a number of the CPU": lambda x: x * torch.tensor(2.0),
    "a copy to the device": lambda x: x + torch.ones(3).to(DEVICE),
    "a look": repr,
}


@pytest.mark.parametrize("name", SILENT)
@pytest.mark.parametrize("inference", [False, True])
def test_what_does_not_wait_is_not_counted(name: str, inference: bool) -> None:
    values = torch.tensor([1.0, 2.0, 3.0], device=DEVICE)
    with torch.inference_mode(inference), waits() as counted:
        SILENT[name](values)
    assert not counted


MIXED: dict[str, Callable[[Tensor], object]] = {
    "a sum": lambda x: x + torch.ones(3),
    "a sum the other way": lambda x: torch.ones(3) + x,
    "an index": lambda x: x[torch.tensor([1])],
    "an assignment": lambda x: x.__setitem__(torch.tensor([1]), 1.0),
    "a product": lambda x: x @ torch.ones(3),
    "a list of tensors": lambda x: torch.cat([x, torch.ones(3)]),
    "a list of numbers": lambda x: torch.stack([x[0], torch.tensor(1.0)]),
    "a change in place": lambda x: torch.ones(3).add_(x),
    "a condition": lambda x: torch.where(torch.ones(3) > 0, x, x),
}


@pytest.mark.parametrize("name", MIXED)
def test_tensors_of_two_devices_do_not_mix(name: str) -> None:
    with pytest.raises(RuntimeError, match="mixes tensors of pretend:0 and the CPU"):
        MIXED[name](torch.tensor([1.0, 2.0, 3.0], device=DEVICE))


def test_the_widest_float_is_what_a_device_has() -> None:
    assert widest_float(CPU) == widest_float(DEVICE) == torch.float64
    with without_double():
        assert widest_float(DEVICE) == torch.float32
        assert widest_float(CPU) == torch.float64
        with pytest.raises(TypeError, match=r"has no torch\.float64"):
            torch.ones(3, device=DEVICE).double()
    assert widest_float(DEVICE) == torch.float64
