"""Probe: small seeded computations whose digests change if the method changes, one digest for each part of it.

A record holds the digests of the parts that its run used. If the code now gives another digest, the record is stale.
Labels, kept candidates and counts enter the digests as they are. Figures are computed in double precision and rounded,
so that threads and machines make no difference; other versions of PyTorch may.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.registry import benchmark_named
from clipper.benchmarks.settings import ENGINES, settings_of
from clipper.candidates import Candidates, Lattice
from clipper.engines import Context, SemanticLoss
from clipper.errors import ClipperError
from clipper.labelling import NamingMixture, name_pool
from clipper.proximity import ProximityGraph, embed
from clipper.pruning import Clipper, infer, prune
from clipper.pruning.objectives import POOLED
from clipper.training import Record, Samples, train
from clipper.training.environment import versions

COMPARABLE = ("torch", "numpy")
"""Packages whose versions must agree before two digests are compared."""
FIGURES = 4
"""Significant digits of what is computed in floating point."""
NOT_TO_BE_HAD = ""
"""The digest of a part that needs data or a package that is missing here."""
_CLASSES, _SLOTS, _WIDTH = 5, 3, 6


def parts_of(config: RunConfig) -> list[str]:
    """The parts of the method that a run of this configuration uses.

    Examples:
        >>> parts_of(RunConfig(objective="none"))
        ['training', 'task sum', 'engine semantic']
        >>> parts_of(RunConfig(objective="joint", engine="scallop", engine_options={"k": None}))[2:]
        ['engine scallop, all proofs', 'joint']
    """
    options = settings_of(config)["engine_options"]
    every = ", all proofs" if config.engine == "scallop" and options["k"] is None else ""
    parts = ["training", f"task {config.rule}", f"engine {config.engine}{every}"]
    if config.objective == "mixture":
        parts += ["joint", "mixture"]
    elif config.objective not in ("none", "gold"):
        parts.append(config.objective if config.objective in POOLED else "pruning")
    return parts + (["draws"] if config.per_sample else [])


def probe_of(config: RunConfig) -> dict[str, str]:
    """The digests of the parts that a run uses, for the current code; without those that cannot be computed here."""
    found = {part: digest(part) for part in parts_of(config)}
    return {part: value for part, value in found.items() if value != NOT_TO_BE_HAD}


def changed_parts(record: Record) -> list[str]:
    """The parts of the method that have changed since a run; none if that cannot be determined."""
    return changed(record.probe, record.versions)


def changed(probe: Mapping[str, str], made_with: Mapping[str, Any]) -> list[str]:
    """The parts whose digest differs from that in `probe`; none if the versions of relevant packages differ, too.

    Examples:
        >>> changed({"draws": "0"}, versions()), changed({"draws": digest("draws")}, versions())
        (['draws'], [])
        >>> changed({"draws": "0"}, {"torch": "1.0"})
        []
    """
    here = versions()
    if any(made_with.get(name) != here[name] for name in COMPARABLE):
        return []
    return [part for part, value in probe.items() if digest(part) not in (NOT_TO_BE_HAD, value)]


@cache
def digest(part: str) -> str:
    """The digest of one part of the method, computed once in a process.

    Examples:
        >>> len(digest("draws")), digest("no such part")
        (12, '')
    """
    name, _, detail = part.partition(" ")
    computed: dict[str, Callable[[], Iterator[Any]]] = {
        "pruning": _pruning,
        "joint": _joint,
        "mixture": _mixture,
        "em": _em,
        "draws": _draws,
        "training": _training,
        "engine": lambda: _engine(detail),
        "task": lambda: _task(detail),
    }
    if name not in computed:
        return NOT_TO_BE_HAD
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the computations are small
    try:
        with torch.random.fork_rng(devices=[]):
            values = list(computed[name]())
    except (ClipperError, ImportError, OSError):  # data or a package that is missing
        return NOT_TO_BE_HAD
    finally:
        torch.set_num_threads(threads)
    return blake2b(json.dumps(values).encode(), digest_size=6).hexdigest()


def _pool(
    rule: Callable[..., Any], samples: int, seed: int, noise: float = 0.3, slots: int = _SLOTS
) -> tuple[Candidates, Tensor, Tensor]:
    """Candidates, embeddings `(n, m, d)` and gold labels `(n, m)`, from uniform draws, the same on all machines."""
    generator = torch.Generator().manual_seed(seed)
    gold = torch.randint(_CLASSES, (samples, slots), generator=generator)
    centres = torch.rand(_CLASSES, _WIDTH, generator=generator, dtype=torch.float64)
    near = torch.rand(samples, slots, _WIDTH, generator=generator, dtype=torch.float64) - 0.5
    targets = [rule(tuple(row)) for row in gold.tolist()]
    return Candidates.from_rule(rule, targets, slots, _CLASSES), centres[gold] + noise * near, gold


def _pruning() -> Iterator[Any]:
    for seed, objective, k in ((0, "exact", 1), (1, "exact", 3), (2, "paper", 3), (3, "random", 1)):
        candidates, embeddings, _ = _pool(sum, 20, seed, noise=0.8)
        graph = ProximityGraph.from_embeddings(embeddings, k=k)
        pruning = Clipper(objective=objective).along(candidates, graph, seed=seed)  # type: ignore[arg-type]
        yield pruning.keep.nonzero()[:, 0].tolist()
    lattice = _lattice()
    embeddings = torch.rand(6, 8, _WIDTH, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    yield prune(lattice, ProximityGraph.from_embeddings(embeddings, k=2)).allowed.nonzero().tolist()
    candidates, embeddings, _ = _pool(sum, 20, 5, noise=0.8)
    for once in (True, False):
        history = train(
            _network(), (embeddings, candidates), SemanticLoss(), clip=Clipper(), epochs=2, batch=8,
            embeddings=embeddings if once else None, once=once,
        )  # fmt: skip
        yield [_rounded(metrics.retained) for metrics in history]


def _lattice() -> Lattice:
    return Lattice.from_rule(
        0, lambda state, label: state + label, lambda state: state, [3, 9, 14, 20, 25, 31], slots=8, classes=_CLASSES
    )


def _joint() -> Iterator[Any]:
    pools = (
        _pool(sum, 40, 0),
        _pool(lambda row: sum(row) % _CLASSES, 40, 1),
        _pool(lambda row: abs(row[0] - row[1]), 40, 2, slots=2),
        _pool(sum, 40, 3, noise=6.0),
    )
    for candidates, embeddings, _ in pools:
        posterior = infer(candidates, embeddings, wrong=0)
        pruning = posterior.prune()
        yield posterior.verdict, posterior.labels.tolist(), len(posterior.namings), pruning.candidates.counts
    candidates, embeddings, gold = _pool(max, 40, 4)
    posterior = infer(candidates, embeddings, known=torch.where(torch.arange(40)[:, None] < 5, gold, -1))
    yield posterior.verdict, posterior.labels.tolist(), (posterior.suspicion > 0.5).tolist()


def _mixture() -> Iterator[Any]:
    for rule, seed in ((sum, 0), (lambda row: abs(row[0] - row[1]), 2)):
        candidates, embeddings, _ = _pool(rule, 60, seed, slots=2)
        pool = name_pool(candidates, embeddings, most=80)
        mixture = NamingMixture(torch.nn.LogSoftmax(-1), pool).eval()
        yield (
            pool.verdict,
            pool.namings.tolist(),
            pool.candidates.counts,
            _summary(mixture(embeddings[:, 0, :_CLASSES])),
        )


def _em() -> Iterator[Any]:
    for rule, seed in ((sum, 0), (max, 1)):
        candidates, embeddings, _ = _pool(rule, 40, seed)
        posterior = infer(candidates, embeddings, method="em")
        yield posterior.labels.tolist(), posterior.prune().candidates.counts


def _draws() -> Iterator[Any]:
    candidates, _, _ = _pool(sum, 20, 0)
    yield candidates.draw(3, 0).labels.tolist()
    yield _lattice().draw(4, 0).labels.tolist()


def _engine(name: str) -> Iterator[Any]:
    kind, _, every = name.partition(", ")
    candidates, embeddings, gold = _pool(sum, 12, 0)
    outputs = Candidates.from_rule(sum, range(_SLOTS * (_CLASSES - 1) + 1), _SLOTS, _CLASSES)
    given: dict[str, dict[str, Any]] = {
        "sampled": {"per_sample": 3},
        "dolphin": {"outputs": outputs},
        "scallop": {"outputs": outputs, **({"k": None} if every else {})},
        "ised": {"rule": sum},
    }
    scores = embeddings[..., :_CLASSES].clone().requires_grad_()
    context = Context(targets=gold.sum(1), embeddings=embeddings, unpruned=candidates)
    losses = ENGINES[kind](**given.get(kind, {}))(scores.log_softmax(-1), candidates, context)
    losses.mean().backward()
    yield [_rounded(value) for value in losses.tolist()]
    yield _rounded(float(scores.grad.norm())) if scores.grad is not None else None


def _network() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = torch.nn.Linear(_WIDTH, 16), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(16, _CLASSES)
    return _WithEmbedding(torch.nn.Sequential(*layers, torch.nn.LogSoftmax(-1)).double())


class _WithEmbedding(torch.nn.Module):
    """A classifier whose embedding is its input."""

    def __init__(self, layers: torch.nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        return self.layers(inputs), inputs


def _training() -> Iterator[Any]:
    candidates, embeddings, gold = _pool(sum, 40, 0)
    for optimiser in (torch.optim.AdamW, torch.optim.SGD):
        network = _network()
        history = train(
            network,
            Samples(embeddings, candidates, gold=gold),
            SemanticLoss(),
            optimiser=optimiser(network.parameters(), lr=0.01),
            epochs=3,
            batch=8,
            evaluate=(embeddings.flatten(0, 1), gold.flatten()),
        )
        yield [[_rounded(metrics.loss), _rounded(metrics.accuracy or 0.0)] for metrics in history]


def _task(rule: str) -> Iterator[Any]:
    """The samples of seed 0, the network's initial weights and the encoder, if the task needs no files."""
    registration = benchmark_named(rule)
    config = registration.quick(RunConfig(rule=rule, samples=4))
    benchmark = registration(replace(config, samples=4))
    samples, network = benchmark.samples, benchmark.network.double().eval()
    inputs = samples.inputs if samples.in_memory else samples.load(torch.arange(len(samples)))
    yield [str(count) for count in samples.candidates.counts], None if samples.gold is None else samples.gold.tolist()
    yield _summary(inputs), [_summary(weights) for weights in network.parameters()]
    yield None if benchmark.encoder is None else _summary(embed(benchmark.encoder, inputs))


def _summary(values: Any) -> list[float]:
    """Mean and spread of a tensor, or of several."""
    parts: Sequence[Tensor] = list(values.values()) if isinstance(values, Mapping) else [values]
    return [_rounded(float(each.detach().double().abs().mean())) for each in parts]


def _rounded(value: float) -> float:
    return float(f"{value:.{FIGURES}g}")
