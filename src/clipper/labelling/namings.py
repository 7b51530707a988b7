"""Namings: if the formulas allow several ways to name the labels, learn one of them and predict the mixture of all.

A classifier that learns from formulas alone converges to any map of the classes that satisfies them, and assigns it a
high probability. Here, joint inference finds groups of instances of one class, and `identify` finds every way to name
these groups.
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
from clipper.labelling.identify import Identification, identify
from clipper.pruning import Posterior, infer
from clipper.pruning.joint.posterior import INFORMATIVE, Verdict
from clipper.pruning.joint.settings import InferenceSettings
from clipper.pruning.objectives import NEIGHBOURS
from clipper.pruning.result import Set

PART = 600
"""Instances that joint inference labels: enough to find the groups within seconds. Neighbours label the others."""
NAMING_BUDGET = 100_000_000
"""Limit of the search for namings, as the budget of `identify`: a few seconds."""
_TOGETHER = 1024
"""Instances whose distances are held at a time."""


@dataclass(frozen=True, eq=False)
class NamedPool(Generic[Set]):
    """A pool whose groups have been found and named in one of the ways that the formulas allow. From `name_pool`.

    Attributes:
        candidates: the candidates to learn from. A sample whose labels were found keeps these labels, by the first
            naming; any other sample keeps all candidates.
        namings: `(k, c)`: the name of each label in each naming, the first naming first; all are equally probable.
        identified: `(c,)` bool: labels that have the same name in every naming. A label that no instance has is not
            among them, because two classes may have got one name.
        verdict: as in a `Posterior`, but "joint" only if all labels are identified.
    """

    candidates: Set
    namings: Tensor
    identified: Tensor
    verdict: Verdict


def name_pool(candidates: Set, embeddings: Tensor, *, most: int = PART, seed: int = 0) -> NamedPool[Set]:
    """Find the groups of a pool and all ways to name them. A classifier can learn one of these, see `NamingMixture`.

    Joint inference labels the first samples, about `most` instances. `identify` then finds every one-to-one map under
    which their labels still satisfy the formulas. It uses only samples whose labels agree with their neighbours'
    messages, because a single wrong label may rule out the right naming. Every other sample gets the labels that are
    most probable by a vote of its nearest labelled neighbours, if their probability is high enough.

    Args:
        candidates: the possible labels of each sample.
        embeddings: `(n, m, d)`.
        most: about how many instances joint inference labels.
        seed: the seed of the inference.

    Returns:
        The pool. If the verdict of joint inference is "unsettled" or "uninformative", the candidates are unchanged and
        the namings are the symmetries of the formulas: they map every solution of the formulas to another one.

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
    if posterior.verdict not in INFORMATIVE or not bool(sure.any()):
        same = identify(candidates)
        return NamedPool(candidates, same.namings, torch.zeros_like(same.identified), _doubtful(posterior))
    found = all_namings(posterior.candidates.batch(sure.nonzero()[:, 0]), posterior.labels[sure])
    labels = torch.full_like(candidates.kind, -1)
    labels[part[sure]] = posterior.labels[sure]
    rest = ~torch.isin(torch.arange(candidates.samples, device=part.device), part[sure])
    others = candidates.batch(rest.nonzero()[:, 0])
    voted = decode(neighbour_vote(vectors, labels, candidates.kind, candidates.classes)[rest], others)
    probable = voted.probability >= InferenceSettings.sure
    labels[rest.nonzero()[:, 0][probable]] = voted.labels[probable]
    identified = found.identified & (found.instances > 0)
    verdict: Verdict = "joint" if bool(identified.all()) else "ambiguous"
    return NamedPool(candidates.restrict(_allowed(labels, candidates.classes)), found.namings, identified, verdict)


def _doubtful(posterior: Posterior[Any]) -> Verdict:
    return "unsettled" if posterior.verdict in INFORMATIVE else posterior.verdict


def all_namings(candidates: CandidateSet, labels: Tensor) -> Identification:
    """The one-to-one maps under which labels `(n, m)` satisfy every formula.

    Args:
        candidates: the possible labels of each sample.
        labels: a candidate of each sample.

    Returns:
        The result of `identify` with these labels. If that search does not finish, the result without labels: the
        symmetries of the formulas, which are some of these maps.
    """
    found = identify(candidates, labels, one_to_one=True, budget=NAMING_BUDGET)
    return found if found.exhaustive else identify(candidates)


def borne_out(posterior: Posterior[Any]) -> Tensor:
    """The samples whose labels agree with their neighbours, `(n,)` bool.

    The labels of such a sample are a candidate, its target is probably right, and each label is the most probable one
    by the neighbours' messages alone, without the sample's own formula.

    Args:
        posterior: from `infer`.

    Examples:
        >>> from clipper import Candidates
        >>> candidates = Candidates.from_rule(sum, targets=[3, 1, 4], slots=2, classes=3)
        >>> posterior = infer(candidates, torch.randn(3, 2, 4), trust=0.1)
        >>> borne_out(posterior).shape
        torch.Size([3])
    """
    samples, slots = posterior.labels.shape
    messages = posterior.mixture.first[:, :, 0].masked_fill(~posterior.mixture.pool.possible, -math.inf)
    agree = (messages.argmax(1).view(samples, slots) == posterior.labels) | (posterior.labels < 0)
    sure: Tensor = posterior.candidates.contains(posterior.labels) & (posterior.suspicion <= 1 / 2)
    return agree.all(1) & sure


def neighbour_vote(embeddings: Tensor, labels: Tensor, kind: Tensor, classes: int, k: int = NEIGHBOURS) -> Tensor:
    """The labels of each instance's nearest labelled neighbours as log-probabilities, `(n, m, c)`, all finite.

    Args:
        embeddings: `(n, m, d)`.
        labels: `(n, m)`; -1 where unknown.
        kind: the kind of label in each slot, `(n, m)`; only instances of the same kind are neighbours.
        classes: the number of labels, `c`.
        k: the number of neighbours that vote.

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
        instances, known = (own == number).nonzero()[:, 0], ((own == number) & (names >= 0)).nonzero()[:, 0]
        votes = nn.functional.one_hot(names[known], classes).to(vote)
        for some in torch.split(instances, _TOGETHER):
            near = torch.cdist(points[some], points[known]).topk(min(k, len(known)), largest=False).indices
            vote[some] += votes[near].mean(1)
    return (vote / vote.sum(1, keepdim=True)).log().view(*labels.shape, classes)


def _allowed(labels: Tensor, classes: int) -> Tensor:
    """The allowed labels, `(n*m, c)` bool: one for each instance with a label, all for the others."""
    flat = labels.flatten()[:, None]
    return (flat < 0) | (flat == torch.arange(classes, device=labels.device))


class NamingMixture(nn.Module):
    """A classifier that learns one naming and, in evaluation mode, predicts the mixture of all namings.

    In training mode, its output is the network's own. In evaluation mode, the probability of a label is its average
    over the namings: if the formulas cannot tell two names apart, both get the same probability.

    Args:
        network: maps instances `(instances, *shape)` to log-probabilities, or to log-probabilities and an embedding.
        pool: the candidates that the network learns from, with their namings.

    Attributes:
        network: the network.
        pool: the pool.
        orders: `(k, c)`: for each naming, the network's label that each label corresponds to.

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
        """Log-probabilities `(instances, c)`, and the network's embedding if it returns one."""
        output = self.network(instances)
        if self.training:
            return output
        if isinstance(output, Tensor):
            return self.mixed(output)
        log_probs, embedding = output
        return self.mixed(log_probs), embedding

    def mixed(self, log_probs: Tensor) -> Tensor:
        """The average of the network's probabilities over all namings, as log-probabilities `(instances, c)`."""
        return torch.stack([log_probs[:, order] for order in self.orders]).logsumexp(0) - math.log(len(self.orders))
