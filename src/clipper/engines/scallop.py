"""Scallop's loss: the probability that one of the proofs holds, its facts being independent of one another."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from clipper.arguments import whole_number
from clipper.candidates import Candidates, CandidateSet
from clipper.candidates.listing import must_be_candidates, must_be_listed
from clipper.engines.base import Context, Engine
from clipper.engines.circuit import CircuitCache
from clipper.engines.disjunction import log_disjunction
from clipper.engines.evidence import paired, with_the_best
from clipper.engines.outputs import check_outputs, check_targets, cost_of_others, on_device
from clipper.engines.packed import candidate_log_probs, segment_top
from clipper.engines.restriction import allowed_only, is_restriction
from clipper.errors import BudgetError, InputError

LARGEST_K = 10
"""Proofs that inclusion–exclusion takes: it visits 2^k sets of them."""
BUDGET = 200_000
"""Size of the largest decision diagram to compile; all sums of three digits stay below it."""


class ScallopLoss(Engine):
    """Scallop's `difftopkproofs`: a disjunction of the `k` most probable proofs, or of all of them.

    Each fact (a slot has a label) is a Bernoulli variable of its own, so two proofs that share none of them hold
    with probability 1 − (1 − pq)(1 − rs), not pq + rs. The loss is the binary cross-entropy against the one-hot
    target over all outputs, −log P(target) − Σ_{o ≠ target} log(1 − P(o)): P(target) comes from the candidates
    given, pruned or not, P(o) from `outputs`; without `outputs` only the first term is there.

    Up to 10 proofs are combined by inclusion–exclusion. More (`k=None`) are compiled into a circuit, once for each
    distinct set of proofs (this needs the extra `circuits`). A pruned sample uses the circuit of its unpruned
    candidates, with the forbidden facts at probability 0, if these are known from `outputs` or from the context and
    if the pruning is a restriction of label domains, as Clipper's are; other sets, such as randomly pruned ones, are
    compiled on their own. Where a circuit would outgrow `budget`, a warning says so and the 10 most probable
    proofs are taken instead. A `Lattice` gives its `k` most probable proofs, exactly; it does not list all.

    Args:
        k: how many proofs to use, at most 10; None for all.
        outputs: the candidates of every value that the program can give, one "sample" each.
        budget: the size of the largest decision diagram to compile.
        entropy: weight of the posterior's entropy, see `posterior_entropy`.

    Examples:
        >>> candidates = Candidates.from_rule(sum, targets=[8, 2], slots=2, classes=10)
        >>> log_probs = torch.zeros(2, 2, 10).log_softmax(-1)
        >>> (-ScallopLoss(k=None)(log_probs, candidates)).exp()  # 1 − 0.99⁹ and 1 − 0.99³
        tensor([0.0865, 0.0297])
        >>> outputs = Candidates.from_rule(sum, targets=range(19), slots=2, classes=10)
        >>> ScallopLoss(k=3, outputs=outputs)(log_probs, candidates, Context(targets=torch.tensor([8, 2])))
        tensor([3.9990, 3.9990])
    """

    def __init__(
        self,
        k: int | None = 3,
        *,
        outputs: CandidateSet | None = None,
        budget: int = BUDGET,
        entropy: float = 0.0,
    ) -> None:
        super().__init__(entropy=entropy)
        self.k = None if k is None else whole_number(k, "k (None for all proofs)", 1, LARGEST_K)
        self.outputs = check_outputs(outputs)
        self.circuits = CircuitCache(whole_number(budget, "budget"))
        self._warned = False
        self.needs = () if outputs is None else ("targets",)

    def losses(self, log_probs: Tensor, candidates: CandidateSet, context: Context) -> Tensor:
        """As in `Engine.losses`."""
        targets = check_targets(context.targets, candidates, self.outputs)
        templates = _check_unpruned(context.unpruned, candidates)
        if self.outputs is not None and targets is not None:
            self.outputs = on_device(self.outputs, log_probs.device)
            templates = self.outputs.batch(targets)
        losses = -self._log_probability(log_probs, candidates, templates)
        if self.outputs is not None and targets is not None:
            losses = losses + cost_of_others(self._outputs(log_probs, self.outputs), targets)
        return losses

    def _log_probability(self, log_probs: Tensor, candidates: CandidateSet, templates: CandidateSet) -> Tensor:
        """log P of each sample's disjunction, `(n,)`."""
        if self.k is not None:
            return _of_most_probable(log_probs, with_the_best(log_probs, candidates, self.k), self.k)
        what = "ScallopLoss(k=None), which takes all proofs,"
        return self._of_all(log_probs, must_be_listed(candidates, what), must_be_listed(templates, what))

    def _of_all(self, log_probs: Tensor, candidates: Candidates, templates: Candidates) -> Tensor:
        few = candidates.counts <= LARGEST_K
        result = log_probs.new_zeros(len(log_probs))
        for ids, method in ((few.nonzero()[:, 0], self._few), ((~few).nonzero()[:, 0], self._many)):
            if len(ids):
                part = method(log_probs[ids], candidates.batch(ids), templates.batch(ids))
                result = result.index_copy(0, ids, part)
        return result

    def _few(self, log_probs: Tensor, candidates: Candidates, _: Candidates) -> Tensor:
        return _of_most_probable(log_probs, candidates, LARGEST_K)

    def _many(self, log_probs: Tensor, candidates: Candidates, templates: Candidates) -> Tensor:
        """By compiled circuits: one evaluation for all samples that share a template."""
        masked = allowed_only(log_probs, candidates)
        result = log_probs.new_zeros(len(log_probs))
        for labels, group in _by_proofs(candidates, templates):
            ids = torch.tensor(group, device=log_probs.device)
            circuit = self.circuits.get(labels)
            if isinstance(circuit, BudgetError):
                self._warn(circuit)
                part = _of_most_probable(log_probs[ids], candidates.batch(ids), LARGEST_K)
            else:
                part = circuit.log_probability(masked[ids])
            result = result.index_copy(0, ids, part)
        return result

    def _outputs(self, log_probs: Tensor, outputs: CandidateSet) -> Tensor:
        """P(o) of every output for every sample, `(n, outputs)`."""
        pairs, repeated = paired(log_probs, outputs)
        return self._log_probability(repeated, pairs, pairs).exp().view(len(log_probs), -1)

    def _warn(self, error: BudgetError) -> None:
        if not self._warned:
            warnings.warn(
                f"not all proofs can be compiled: {error}, more than the budget of {self.circuits.budget:,}; "
                f"the {LARGEST_K} most probable proofs of each such sample are used instead. "
                "Raise budget= if memory and time allow, or choose k=",
                stacklevel=5,
            )
            self._warned = True


def _check_unpruned(unpruned: CandidateSet | None, candidates: CandidateSet) -> CandidateSet:
    """The candidates themselves where nothing is known of a pruning."""
    if unpruned is None:
        return candidates
    must_be_candidates(unpruned, "unpruned")
    expected = (candidates.samples, candidates.slots, candidates.classes)
    got = (unpruned.samples, unpruned.slots, unpruned.classes)
    if got != expected:
        raise InputError(
            f"expected unpruned candidates of the same samples, slots and classes as the candidates, {expected}, "
            f"got {got}"
        )
    return unpruned


def _of_most_probable(log_probs: Tensor, candidates: Candidates, k: int) -> Tensor:
    """log P of the disjunction of each sample's `k` most probable proofs, `(n,)`."""
    values = candidate_log_probs(log_probs.detach(), candidates)
    rows, found = (top.T for top in segment_top(values, candidates, k))  # (n, k)
    labels = candidates.labels[rows].long()  # (n, k, m)
    facts = log_probs.gather(2, labels.clamp(min=0).transpose(1, 2)).transpose(1, 2)  # (n, k, m)
    return log_disjunction(torch.where(labels < 0, 0, facts), labels, found)


def _by_proofs(candidates: Candidates, templates: Candidates) -> list[tuple[Tensor, list[int]]]:
    """The distinct sets of proofs to compile, `(proofs, m)` each, and the samples that each of them serves."""
    fits = is_restriction(candidates, templates).tolist()
    bounds = {True: templates.offsets.tolist(), False: candidates.offsets.tolist()}
    rows = {True: templates.labels.cpu(), False: candidates.labels.cpu()}
    groups: dict[bytes, tuple[Tensor, list[int]]] = {}
    for i, fit in enumerate(fits):
        labels = rows[fit][bounds[fit][i] : bounds[fit][i + 1]]
        groups.setdefault(labels.numpy().tobytes(), (labels, []))[1].append(i)
    return list(groups.values())
