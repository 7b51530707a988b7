"""Scallop's loss: the probability that at least one proof holds, if all facts are independent of each other."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from clipper.arguments import whole_number, widened
from clipper.candidates import Candidates, CandidateSet
from clipper.candidates.base import must_be_candidates
from clipper.engines.base import Context
from clipper.engines.outputs import OutputEngine
from clipper.engines.proof_circuits import compiled
from clipper.errors import BudgetError, InputError

LARGEST_K = 10
"""Largest number of proofs for inclusion–exclusion, which sums over 2^k sets of proofs."""
BUDGET = 200_000
"""Size of the largest decision diagram to compile; all sums of three digits stay below it."""
_IMPOSSIBLE = -1e30
"""Used in place of log 0 inside the sums, where -inf · 0 would be NaN."""


class ScallopLoss(OutputEngine):
    """Scallop's `difftopkproofs`: a disjunction of the `k` most probable proofs, or of all of them.

    Each fact (a slot has a label) is an independent Bernoulli variable. So one of two proofs that share no fact holds
    with probability 1 − (1 − pq)(1 − rs), not pq + rs. The loss is the binary cross-entropy against the one-hot
    target over all outputs, −log P(target) − Σ_{o ≠ target} log(1 − P(o)). P(target) is computed from the candidates,
    pruned or not, and P(o) from `outputs`. Without `outputs`, the loss is only the first term.

    Up to 10 proofs are combined by inclusion–exclusion. More (`k=None`) are compiled into a circuit, once for each
    distinct set of proofs (this needs the extra `circuits`). A pruned sample uses the circuit of its unpruned
    candidates, with probability 0 for the forbidden facts, if these candidates are known from `outputs` or from the
    context and can be listed, and the pruning is a restriction of label domains, as Clipper's are. Other sets, such as
    randomly pruned ones, are compiled separately. If a circuit would be larger than `budget`, the engine warns and uses
    the 10 most probable proofs instead. The `k` most probable proofs of a set that is not listed, such as a lattice,
    are exact; with `k=None` the set is listed by `to_candidates`.

    Args:
        k: how many proofs to use, at most 10; None for all.
        outputs: the candidates of every possible output, one "sample" for each.
        budget: the size of the largest decision diagram to compile.
        entropy: weight of the entropy of the posterior, see `CandidateSet.entropy`.

    Attributes:
        k: how many proofs to use; None for all.
        outputs: the candidates of every possible output, on the device of the last log-probabilities; or None.
        needs: `("targets",)` with `outputs`, nothing without.

    Raises:
        InputError: an option is out of range.

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
        super().__init__(outputs, entropy=entropy)
        self.k = None if k is None else whole_number(k, "k (None for all proofs)", 1, LARGEST_K)
        self._budget = whole_number(budget, "budget")
        self._warned = False

    def log_any(self, log_probs: Tensor, candidates: CandidateSet, context: Context) -> Tensor:
        """The log-probability of each sample's disjunction, `(n,)`."""
        if self.k is not None:
            return _disjunction(log_probs, candidates.top_k(log_probs, self.k))
        if self.outputs is not None and context.targets is not None:
            unpruned = self.outputs.select(context.targets)
        else:
            unpruned = _checked_unpruned(context.unpruned, candidates)
        listed = candidates.to_candidates()
        return self._of_all(log_probs, listed, listed if unpruned is candidates else unpruned)

    def output_probabilities(self, log_probs: Tensor, outputs: CandidateSet) -> Tensor:
        """The probability of every output for every sample, `(n, outputs)`."""
        every = torch.arange(outputs.samples, device=log_probs.device).repeat(len(log_probs))
        repeated = log_probs.repeat_interleave(outputs.samples, 0)  # every sample with every output
        return self.log_any(repeated, outputs.select(every), Context()).exp().view(len(log_probs), -1)

    def _of_all(self, log_probs: Tensor, candidates: Candidates, unpruned: CandidateSet) -> Tensor:
        few = torch.tensor([count <= LARGEST_K for count in candidates.counts])
        result = log_probs.new_zeros(len(log_probs))
        for which, of_few in ((few, True), (~few, False)):
            ids = which.nonzero()[:, 0].to(log_probs.device)
            if len(ids):
                own, kept = log_probs[ids], candidates.select(ids)
                part = _disjunction(own, kept) if of_few else self._by_circuits(own, kept, unpruned.select(ids))
                result = result.index_copy(0, ids, part)
        return result

    def _by_circuits(self, log_probs: Tensor, candidates: Candidates, unpruned: CandidateSet) -> Tensor:
        """One evaluation for all samples that share a circuit."""
        try:
            templates = unpruned.to_candidates()
        except BudgetError:  # there are too many to list, so every pruned set has a circuit of its own
            templates = candidates
        masked = torch.where(candidates.support.view(log_probs.shape), log_probs, -torch.inf)
        result = log_probs.new_zeros(len(log_probs))
        for proofs, group in _by_proofs(candidates, templates).items():
            ids = torch.tensor(group, device=log_probs.device)
            circuit = compiled(*proofs, candidates.slots, self._budget)
            if isinstance(circuit, BudgetError):
                self._warn(circuit)
                part = _disjunction(log_probs[ids], candidates.select(ids).top_k(log_probs[ids], LARGEST_K))
            else:
                part = circuit.log_probability(masked[ids])
            result = result.index_copy(0, ids, part)
        return result

    def _warn(self, error: BudgetError) -> None:
        if not self._warned:
            warnings.warn(
                f"not all proofs can be compiled: {error}, more than the budget of {self._budget:,}; "
                f"the {LARGEST_K} most probable proofs of each such sample are used instead. "
                "Raise budget= if memory and time allow, or choose k=",
                stacklevel=5,
            )
            self._warned = True


def _checked_unpruned(unpruned: CandidateSet | None, candidates: CandidateSet) -> CandidateSet:
    """The unpruned candidates, checked; the candidates themselves if there are none."""
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


def _disjunction(log_probs: Tensor, candidates: Candidates) -> Tensor:
    """The log-probability of the disjunction of each sample's candidates, of which there must be few, `(n,)`."""
    if not len(candidates):  # outputs that no labels give
        return log_probs.new_full((candidates.samples,), -torch.inf)
    counts = candidates.offsets.diff()
    place = torch.arange(int(counts.max()), device=counts.device)  # (k,)
    found = place < counts[:, None]  # (n, k)
    rows = (candidates.offsets[:-1, None] + place * found).clamp(max=len(candidates) - 1)  # the last may have none
    labels = candidates.labels[rows].long()  # (n, k, m)
    facts = log_probs.gather(2, labels.clamp(min=0).transpose(1, 2)).transpose(1, 2)  # (n, k, m)
    return log_disjunction(torch.where(labels < 0, 0, facts), labels, found)


def log_disjunction(facts: Tensor, labels: Tensor, found: Tensor) -> Tensor:
    """log P(at least one of `k` proofs holds), `(b,)`; -inf where it is impossible.

    A fact is a slot and a label; proofs with the same label in a slot share that fact. The sum is over all 2^k sets of
    proofs, `b · 2^k · m` numbers in total, in the highest precision of the device.

    Args:
        facts: the log-probability of each proof's facts, `(b, k, m)`.
        labels: the labels that name these facts, `(b, k, m)`.
        found: whether there is such a proof, `(b, k)` bool.

    Examples:
        >>> half = torch.full((1, 2, 2), 0.5).log()
        >>> found = torch.ones(1, 2, dtype=torch.bool)
        >>> log_disjunction(half, torch.tensor([[[0, 1], [1, 0]]]), found).exp()  # 1 - (1 - 1/4)²
        tensor([0.4375])
        >>> log_disjunction(half, torch.tensor([[[0, 0], [0, 1]]]), found).exp()  # 1/2 · (1 - (1/2)²)
        tensor([0.3750])
    """
    known = found[..., None] & (facts != -torch.inf)
    logs = torch.where(known, widened(facts), _IMPOSSIBLE)
    proof = torch.arange(facts.shape[1], device=facts.device)
    labels = torch.where(found[..., None], labels.long(), -2 - proof[:, None])  # an absent proof shares no fact
    sums, signs = _sums_over_sets(logs, labels)
    peak = logs.detach().sum(2).amax(1)  # no set is more probable than its most probable proof
    total = (signs * (sums - peak[:, None]).exp())[:, 1:].sum(1)
    possible = ~(peak < _IMPOSSIBLE / 2)  # NaN stays NaN, for the caller to find
    return torch.where(possible, torch.where(possible, total, 1).log() + peak, -torch.inf).to(facts.dtype)


def _sums_over_sets(logs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The summed log-probability of the facts in each set of proofs, `(b, 2^k)`, and the set's sign, `(2^k,)`."""
    sums, signs = logs.new_zeros(len(logs), 1), -logs.new_ones(1)
    for i in range(logs.shape[1]):  # each further proof doubles the sets: those without and those with it
        sets = torch.arange(2**i, device=logs.device)[:, None]  # (2^i, 1), the proofs as bits
        bits = (1 << torch.arange(i, device=logs.device))[:, None]  # (i, 1)
        sharing = ((labels[:, i : i + 1] == labels[:, :i]) * bits).sum(1)  # (b, m): earlier proofs with this fact
        fresh = (sets & sharing[:, None]) == 0  # (b, 2^i, m)
        sums = torch.cat([sums, sums + torch.where(fresh, logs[:, i, None], 0).sum(2)], dim=1)
        signs = torch.cat([signs, -signs])
    return sums, signs


def _by_proofs(candidates: Candidates, unpruned: Candidates) -> dict[tuple[bytes, torch.dtype], list[int]]:
    """The distinct sets of proofs to compile, as `compiled` takes them, and the samples with each set."""
    fits = is_restriction(candidates, unpruned).tolist()
    bounds = {True: unpruned.offsets.tolist(), False: candidates.offsets.tolist()}
    rows = {True: unpruned.labels.cpu(), False: candidates.labels.cpu()}
    groups: dict[tuple[bytes, torch.dtype], list[int]] = {}
    for i, fit in enumerate(fits):
        labels = rows[fit][bounds[fit][i] : bounds[fit][i + 1]]
        groups.setdefault((labels.numpy().tobytes(), labels.dtype), []).append(i)
    return groups


def is_restriction(candidates: Candidates, unpruned: Candidates) -> Tensor:
    """Whether each sample's candidates are its unpruned rows with σ(j) ∈ support(j) for all slots j, `(n,)` bool.

    Clipper's prunings always are (they keep the order of rows). A random pruning is not: it discards rows whose labels
    all occur in other remaining rows.

    Examples:
        >>> whole = Candidates.from_lists([[(0, 2), (1, 1), (2, 0)]] * 2, classes=3)
        >>> kept = whole.subset(torch.tensor([False, True, True, True, False, True]))
        >>> is_restriction(kept, whole)
        tensor([True, True])
        >>> whole = Candidates.from_lists([[(0, 0), (0, 1), (1, 0), (1, 1)]], classes=2)
        >>> is_restriction(whole.subset(torch.tensor([True, False, False, True])), whole)
        tensor([False])
    """
    inside = unpruned.narrowed(candidates.support)
    same = inside.offsets.diff() == candidates.offsets.diff()  # (n,)
    ours, theirs = (same[rows.sample].nonzero()[:, 0] for rows in (candidates, inside))
    differ = (candidates.labels[ours] != inside.labels[theirs]).any(1)
    return same.index_fill(0, candidates.sample[ours][differ], False)
