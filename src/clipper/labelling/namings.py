"""Namings: where the formulas leave several names open, learn one of them and predict the mixture of all.

A classifier that learns from formulas alone ends at any map of the classes that satisfies them, and is sure of it. Here
joint inference finds the groups, which keeps different classes apart, and `identify` finds every way to name them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Generic

import torch
from torch import Tensor, nn

from clipper.arguments import as_tensor, seed_number, whole_number
from clipper.candidates import CandidateSet
from clipper.candidates.base import must_be_candidates
from clipper.errors import InputError
from clipper.labelling.decode import decode
from clipper.labelling.identify import BUDGET, Identification, identify
from clipper.pruning import Posterior, infer
from clipper.pruning.joint.posterior import Verdict
from clipper.pruning.joint.settings import InferenceSettings
from clipper.pruning.objectives import NEIGHBOURS
from clipper.pruning.result import Set

PART = 600
"""Instances that joint inference looks at: enough to find the groups, few enough for seconds. The rest follow them."""
_BUDGET = 100_000_000
"""Of the search for namings: a few seconds."""
_TOGETHER = 1024
"""Instances whose distances are held at a time."""


@dataclass(frozen=True, eq=False)
class NamedPool(Generic[Set]):
    """A pool whose groups have been found and named, one way among those that the formulas allow.

    Attributes:
        candidates: what is left to learn from: of a sample whose labels were found, these labels under the first
            naming; of any other, all candidates.
        namings: `(k, c)`: what each label may be called, the first naming first; each is as probable as any other.
        identified: `(c,)` bool: labels that all namings call the same. One that no instance has is not among them: two
            classes may have ended up under one name.
        verdict: as of a `Posterior`, but "joint" only if all labels are identified.
    """

    candidates: Set
    namings: Tensor
    identified: Tensor
    verdict: Verdict


def name_pool(candidates: Set, embeddings: Tensor, *, most: int = PART, seed: int = 0) -> NamedPool[Set]:
    """Find the groups of a pool and all ways to name them; a classifier can learn one of these, see `NamingMixture`.

    Joint inference looks at the first samples, `most` instances of them. `identify` then finds every one-to-one map
    under which their labels still satisfy the formulas. A sample has a say only if its labels are what its neighbours
    say without it, because a single misread input may refute the right names. All other samples get the most probable
    labels by a vote of their nearest neighbours among these, where that is sure enough.

    Args:
        candidates: what the labels could be.
        embeddings: `(n, m, d)`.
        most: how many instances joint inference looks at, about.
        seed: of the inference.

    Returns:
        The pool. If joint inference does not settle, its candidates are as they were, and its namings are the
        symmetries of the formulas: whatever a classifier learns from them, these maps of it satisfy them just as well.

    Raises:
        InputError: the embeddings do not fit the candidates, or an option is out of range.

    Examples:
        >>> from clipper import Candidates
        >>> generator = torch.Generator().manual_seed(0)
        >>> bits = torch.randint(0, 2, (60, 2), generator=generator)
        >>> same = Candidates.from_rule(lambda y: y[0] == y[1], bits[:, 0] == bits[:, 1], slots=2, classes=2)
        >>> points = torch.randn(2, 8, generator=generator)[bits] + 0.1 * torch.randn(60, 2, 8, generator=generator)
        >>> pool = name_pool(same, points)
        >>> pool.verdict, pool.namings.tolist(), pool.candidates.counts == [1] * 60
        ('ambiguous', [[0, 1], [1, 0]], True)
    """
    must_be_candidates(candidates)
    most, seed = whole_number(most, "most"), seed_number(seed)
    vectors = as_tensor(embeddings, "embeddings", candidates.device)
    if vectors.ndim != 3 or tuple(vectors.shape[:2]) != (candidates.samples, candidates.slots):
        raise InputError(
            f"expected embeddings of shape ({candidates.samples}, {candidates.slots}, d), got {tuple(vectors.shape)}"
        )
    part = torch.arange(min(max(1, most // candidates.slots), candidates.samples), device=candidates.device)
    posterior = infer(candidates.batch(part), vectors[part], seed=seed)
    sure = borne_out(posterior)
    if posterior.verdict not in ("joint", "ambiguous") or not bool(sure.any()):
        same = identify(candidates)
        return NamedPool(candidates, same.namings, torch.zeros_like(same.identified), _doubtful(posterior))
    found = all_namings(posterior.candidates.batch(sure.nonzero()[:, 0]), posterior.labels[sure], _BUDGET)
    labels = torch.full_like(candidates.kind, -1)
    labels[part[sure]] = posterior.labels[sure]
    rest = ~torch.isin(torch.arange(candidates.samples, device=part.device), part[sure])
    others = candidates.batch(rest.nonzero()[:, 0])
    said = decode(neighbour_vote(vectors, labels, candidates.kind, candidates.classes)[rest], others)
    believed = said.probability >= InferenceSettings.sure
    labels[rest.nonzero()[:, 0][believed]] = said.labels[believed]
    identified = found.identified & (found.instances > 0)
    verdict: Verdict = "joint" if bool(identified.all()) else "ambiguous"
    return NamedPool(candidates.restrict(_allowed(labels, candidates.classes)), found.namings, identified, verdict)


def _doubtful(posterior: Posterior[Any]) -> Verdict:
    return "unsettled" if posterior.verdict in ("joint", "ambiguous") else posterior.verdict


def all_namings(candidates: CandidateSet, labels: Tensor, budget: int = BUDGET) -> Identification:
    """The one-to-one maps under which labels `(n, m)` satisfy every formula.

    Args:
        candidates: what the labels could be.
        labels: a candidate of each sample.
        budget: as of `identify`.

    Returns:
        What `identify` finds by the labels; the symmetries of the formulas, which are some of these maps, if that
        search is not completed.
    """
    found = identify(candidates, labels, one_to_one=True, budget=budget)
    return found if found.exhaustive else identify(candidates)


def borne_out(posterior: Posterior[Any]) -> Tensor:
    """The samples whose labels are a candidate and, slot by slot, what their neighbours say without them, `(n,)` bool.

    Examples:
        >>> from clipper import Candidates
        >>> candidates = Candidates.from_rule(sum, targets=[3, 1, 4], slots=2, classes=3)
        >>> posterior = infer(candidates, torch.randn(3, 2, 4), trust=0.1)
        >>> borne_out(posterior).shape
        torch.Size([3])
    """
    samples, slots = posterior.labels.shape
    heard = posterior.mixture.first[:, :, 0].masked_fill(~posterior.mixture.pool.possible, -math.inf)
    agree = (heard.argmax(1).view(samples, slots) == posterior.labels) | (posterior.labels < 0)
    sure: Tensor = posterior.candidates.contains(posterior.labels) & (posterior.suspicion <= 1 / 2)
    return agree.all(1) & sure


def neighbour_vote(embeddings: Tensor, labels: Tensor, kind: Tensor, classes: int, k: int = NEIGHBOURS) -> Tensor:
    """The labels of the nearest labelled instances as log-probabilities, `(n, m, c)`; none of them is ever zero.

    Args:
        embeddings: `(n, m, d)`.
        labels: `(n, m)`; -1 where unknown.
        kind: of label, of each slot, `(n, m)`; only instances of the same kind have a vote.
        classes: `c`.
        k: neighbours with a vote.

    Examples:
        >>> points = torch.tensor([[[0.0], [9.0]], [[0.1], [5.0]]])
        >>> labels = torch.tensor([[0, 1], [-1, -1]])
        >>> neighbour_vote(points, labels, torch.zeros_like(labels), classes=2, k=1)[1].exp()
        tensor([[0.9902, 0.0098],
                [0.0098, 0.9902]])
    """
    points, names, own = embeddings.flatten(0, 1).float(), labels.flatten(), kind.flatten()
    vote = points.new_full((len(points), classes), InferenceSettings.least_error)
    for number in torch.unique(own[names >= 0]).tolist():
        asked, known = (own == number).nonzero()[:, 0], ((own == number) & (names >= 0)).nonzero()[:, 0]
        said = nn.functional.one_hot(names[known], classes).to(vote)
        for some in torch.split(asked, _TOGETHER):
            near = torch.cdist(points[some], points[known]).topk(min(k, len(known)), largest=False).indices
            vote[some] += said[near].mean(1)
    return (vote / vote.sum(1, keepdim=True)).log().view(*labels.shape, classes)


def _allowed(labels: Tensor, classes: int) -> Tensor:
    """A label for each instance that has one, and all labels for the others, `(n*m, c)` bool."""
    flat = labels.flatten()[:, None]
    return (flat < 0) | (flat == torch.arange(classes, device=labels.device))


class NamingMixture(nn.Module):
    """A classifier that learns one naming and, once it is evaluated, predicts the mixture of all.

    In training mode its output is the network's own. In evaluation mode a label's probability is its average over the
    namings: where the formulas cannot tell two names apart, both get half.

    Args:
        network: from instances `(instances, *shape)` to log-probabilities, alone or before an embedding.
        pool: what the network learns from, and what its labels may be called.

    Attributes:
        network: as given.
        pool: as given.
        orders: `(k, c)`: which of the network's labels each label is, under each naming.

    Examples:
        >>> from clipper import Candidates
        >>> pool = NamedPool(Candidates.from_lists([[(0,)]], classes=3), torch.tensor([[0, 1, 2], [0, 2, 1]]),
        ...                  torch.tensor([True, False, False]), "ambiguous")
        >>> mixture = NamingMixture(nn.LogSoftmax(-1), pool)
        >>> mixture.eval()(torch.tensor([[0.1, 0.0, 0.9], [1.0, 0.0, 0.0]]).log()).exp()
        tensor([[0.1000, 0.4500, 0.4500],
                [1.0000, 0.0000, 0.0000]])
    """

    orders: Tensor

    def __init__(self, network: nn.Module, pool: NamedPool[Any]) -> None:
        super().__init__()
        self.network, self.pool = network, pool
        self.register_buffer("orders", pool.namings.argsort(1))

    def forward(self, instances: Tensor) -> Any:
        """Log-probabilities `(instances, c)`, before an embedding if the network gives one."""
        output = self.network(instances)
        if self.training:
            return output
        if isinstance(output, Tensor):
            return self.mixed(output)
        log_probs, embedding = output
        return self.mixed(log_probs), embedding

    def mixed(self, log_probs: Tensor) -> Tensor:
        """The mixture of all namings, `(instances, c)`, of what the network says."""
        return torch.stack([log_probs[:, order] for order in self.orders]).logsumexp(0) - math.log(len(self.orders))
