"""infer: joint inference of the labels of a whole pool."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isfinite, log, prod
from time import monotonic
from typing import TYPE_CHECKING, Generic, Literal

import torch
from torch import Tensor, finfo

from clipper.arguments import as_tensor, one_of, real_number, seed_number, shown, whole_number, widened
from clipper.candidates import CandidateSet
from clipper.candidates.base import check_any_possible, check_log_probs, must_be_candidates
from clipper.errors import InputError
from clipper.proximity import ProximityGraph
from clipper.pruning.distributed import shared_graph
from clipper.pruning.factors import CandidateFactor, factor_of, formulas_of, of_all_ranks
from clipper.pruning.graphs import check_edges, graph_of
from clipper.pruning.joint.naming import Namings, NamingSearch, matched
from clipper.pruning.joint.pool import Pool, one_hot
from clipper.pruning.joint.posterior import INFORMATIVE, Mixture, Posterior, Verdict
from clipper.pruning.joint.potential import Potential, Trust, equal_confusion
from clipper.pruning.joint.propagate import (
    Schedule,
    cavities,
    exact_probabilities,
    propagate,
    score,
    side_by_side,
    zero_messages,
)
from clipper.pruning.joint.search import Found, islands, region_weights, search
from clipper.pruning.joint.settings import InferenceSettings
from clipper.pruning.joint.verification import (
    Verification,
    formula_leak,
    misfit_of,
    prior_surprise,
    verified,
)
from clipper.pruning.objectives import NEIGHBOURS, listed_only
from clipper.pruning.pairs import Edges
from clipper.pruning.ranks import ALONE, Ranks, Shard
from clipper.pruning.result import Set

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


def infer(
    candidates: Set,
    graph: ProximityGraph | Tensor,
    *,
    known: Tensor | None = None,
    wrong: float | None = None,
    deadline: float | None = None,
    method: Literal["joint", "em"] = "joint",
    log_probs: Tensor | None = None,
    trust: Trust | float | None = None,
    starts: int | None = None,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
    settings: InferenceSettings | None = None,
    previous: Posterior[Set] | None = None,
    group: ProcessGroup | None = None,
) -> Posterior[Set]:
    """Infer which candidates are probable, given that near instances tend to share a label.

    The pool is one graphical model: a variable for each sample (its candidate) and a soft equality for each edge.
    Belief propagation starts from many initial states, each time with some formulas hidden. The hidden formulas then
    test the result, so no gold label is needed.

    With a process group of `torch.distributed`, each rank passes its own samples: their candidates, and their
    embeddings or the edges that leave them. The pool consists of the samples of all ranks, and neighbours are found
    among all of them. Each rank gets the posterior of its own samples, the same as in one process. All ranks must call
    this function with the same options. `clipper.pruning.partition` divides a pool so that ranks exchange little data.

    Args:
        candidates: the possible labels of each sample; a lattice may have any number of candidates.
        graph: which instances may share a label, with five to ten neighbours each; the direction and the repetition of
            edges do not matter. Or embeddings `(n, m, d)`, in which eight neighbours of each instance are found.
        known: labels that you know, `(n, m)`, -1 elsewhere; the result contains them.
        wrong: the probability that a sample's target is wrong; fitted to the pool if None, or 0 if `trust` is given.
        deadline: seconds after which no new round of the search begins; if one was needed, the verdict is "unsettled".
        method: "joint", or "em" for the baseline: expectation-maximisation over neighbours' averages.
        log_probs: the output of a classifier, `(n, m, c)`, as additional evidence. Use a classifier that was not
            trained on these samples, because it would repeat its training labels. Its weight is chosen by how well it
            predicts the formulas.
        trust: how often pairs disagree: a `Trust`, or one probability for all pairs; fitted to the pool if not given.
            If it is given, the posterior is that of the model with this value, exact on pools without cycles and on
            small pools.
        starts: the number of states in a generation of the search; by default it depends on the size of the pool.
        seed: the seed of the noise.
        progress: called with the share of the search that is done.
        settings: the constants, for experiments.
        previous: an earlier posterior of the same samples. If more labels are known now, the search continues from it,
            which takes less time. An "unsettled" one is ignored.
        group: the processes that infer together, such as `torch.distributed.group.WORLD`; None for this process only.
            In a graph, sources then count this rank's instances from 0, and targets count those of all ranks.

    Returns:
        A `Posterior`: the most probable labels, the marginals, and a verdict on whether to rely on them.
        `posterior.prune(mass)` keeps the most probable candidates of each sample up to this total probability.

    Raises:
        InputError: graph, log_probs, known labels or options do not fit the candidates, or those of other ranks.
        RankError: another rank does not answer.

    Examples:
        >>> from clipper import Candidates
        >>> candidates = Candidates.from_rule(sum, targets=[3, 1, 4], slots=2, classes=3)
        >>> graph = ProximityGraph.from_edges([0, 1], [4, 5])
        >>> posterior = infer(candidates, graph, trust=0.1)
        >>> posterior.labels.tolist()[0] in ([1, 2], [2, 1])
        True
        >>> posterior.probability.shape, posterior.marginals.shape
        (torch.Size([5]), torch.Size([3, 2, 3]))
    """
    ranks, support = ALONE if group is None else Ranks(group), None
    if group is None:
        check_any_possible(must_be_candidates(candidates))
        graph = graph_of(candidates, graph, NEIGHBOURS)
        check_edges(candidates, graph, candidates)
    else:
        graph, support = shared_graph(ranks, must_be_candidates(candidates), graph, NEIGHBOURS)
    curve, seed, starts, wrong, settings, seconds = options = ranks.agreed(
        lambda: _checked_options(candidates, trust, seed, starts, wrong, settings, deadline, progress, method, previous)
    )
    if group is not None:
        _check_alike(ranks, *options, method, known is None, log_probs is None, previous is None)
    deadline = None if seconds is None else monotonic() + seconds
    with torch.no_grad():
        wrong = 0.0 if curve is not None and wrong is None else wrong
        pool, impossible = _pool_of(candidates, graph, known, wrong, ranks)
        run = _Run(
            candidates, graph, pool, pool.unary, impossible, curve, wrong, deadline, starts,
            torch.Generator().manual_seed(seed), progress or (lambda _: None), settings,
            previous.found if previous is not None and previous.verdict in INFORMATIVE else None, support,
        )  # fmt: skip
        if log_probs is not None:
            run = replace(run, pool=run.with_classifier(log_probs))
        return run.baseline() if method == "em" else run.posterior()


def _checked_options(
    candidates: CandidateSet, trust: Trust | float | None, seed: int, starts: int | None, wrong: float | None,
    settings: InferenceSettings | None, deadline: object, progress: object, method: object, previous: object,
) -> tuple[Trust | None, int, int | None, float | None, InferenceSettings, float | None]:  # fmt: skip
    """Trust, seed, starts, share of wrong targets, settings and seconds, checked."""
    settings = InferenceSettings() if settings is None else settings
    if not isinstance(settings, InferenceSettings):
        raise InputError(f"expected settings to be InferenceSettings(...), got {shown(settings)}")
    if progress is not None and not callable(progress):
        raise InputError(f"expected progress to be a function of the share that is done, got {shown(progress)}")
    curve, seed = _checked_trust(trust, settings), seed_number(seed)
    if starts is not None:
        starts = whole_number(starts, "starts")
    seconds = None if deadline is None else real_number(deadline, "deadline, in seconds,", least=0)
    if wrong is not None:
        wrong = real_number(wrong, "wrong, the share of wrong targets,", least=0, below=1)
    one_of(method, "method", ("joint", "em"))
    if previous is not None and not isinstance(previous, Posterior):
        raise InputError(f"expected previous to be a Posterior of the same samples, got {shown(previous)}")
    if previous is not None and previous.labels.shape != (candidates.samples, candidates.slots):
        raise InputError(
            f"expected a previous posterior of the same samples and slots, {candidates.samples} and "
            f"{candidates.slots}, got {tuple(previous.labels.shape)}"
        )
    return curve, seed, starts, wrong, settings, seconds


@dataclass(frozen=True, eq=False)
class _Run(Generic[Set]):
    """One inference: its arguments, and the steps to the posterior."""

    candidates: Set
    graph: ProximityGraph
    pool: Pool
    known: Tensor
    impossible: Tensor
    trust: Trust | None
    wrong: float | None
    deadline: float | None
    starts: int | None
    generator: torch.Generator
    progress: Callable[[float], None]
    settings: InferenceSettings
    previous: Found | None = None
    support: Tensor | None = None

    def posterior(self) -> Posterior[Set]:
        """Search states, fit ψ, verify, find the namings, and weigh states and namings."""
        settings, pool = self.settings, self.pool
        given, determined = self.trust is not None, self._all_determined()
        first = Potential(
            self.trust or Trust(*settings.first_trust),
            finfo(torch.float).eps if given else settings.least_error,
            1.0 if given else settings.rarest,
        )
        found = search(
            pool, first, settings, self.generator, self.out_of_time, self.starts, self.progress, self.previous
        )
        labels = self._finalists(found)
        potential, messages = self._fitted(pool, first, labels)
        states = torch.cat([states.labels[:, :1] for states in found.states], 1)
        prior = prior_surprise(replace(pool, unary=self.known), found.fold, states, settings)
        parts = [self._held_out(pool, potential, found, fold) for fold in range(len(found.states))]
        held = _of_folds(pool, found, parts)
        verification = alone = replace(self._verified(pool, held, prior), leak=self._leak())
        verdict = "joint" if determined else self._verdict(alone, found)
        namings = Namings.given(pool.classes)
        if verdict == "joint":
            held = _of_folds(pool, found, self._renamed(pool, messages, found, parts))
            verification = self._verified(pool, held, prior)
            if not (
                given or determined
            ):  # namings come before wrong targets: under a wrong naming, right targets look wrong
                before = messages
                potential, messages, namings = self._named(pool, potential, messages, held, verification, prior)
                if messages is not before:
                    held = _of_folds(pool, found, self._renamed(pool, messages, found, parts))
                    verification = self._verified(pool, held, prior)
            doubted = (verification.suspicion > 1 / 2) | self.impossible
            if pool.ranks.any(doubted != self.impossible):
                pool = replace(pool, disbelieved=doubted)
                if not given:
                    potential, messages = self._refitted(pool, potential, side_by_side(messages[:, :, :1]))
                messages = self._polished(pool, potential, labels, messages)
        sharpness, misfit = 1.0 if given else verification.sharpness, 0.0
        if verdict == "joint" and not (given or determined):
            misfit = self._misfit(held, prior, sharpness)
            if misfit > settings.negligible or not self._found_again(pool, messages, namings):
                verdict = "unsettled"
            elif not torch.equal(namings.orbit, torch.arange(pool.classes)):
                verdict = "ambiguous"
        elif not given and (verdict == "uninformative" or alone.leak > settings.leak):
            sharpness = 0.0  # ignore the neighbours' messages
        if verdict not in INFORMATIVE:
            verification = replace(verification, wrong=0.0, suspicion=self.impossible.to(held))
        verification = replace(
            alone, sharpness=sharpness, wrong=verification.wrong, suspicion=verification.suspicion, misfit=misfit
        )
        concluded = self._concluded(pool, potential, messages, namings, verdict, verification)
        return replace(concluded, found=found)

    def _labels(self, pool: Pool, messages: Tensor) -> Tensor:
        """The labels of the best state, `(n*m,)`."""
        return pool.best(pool.heard(messages[:, :, :1]).add_(pool.unary))[:, 0]

    def _renamed(self, pool: Pool, messages: Tensor, found: Found, parts: list[Tensor]) -> list[Tensor]:
        """The messages in the state of each fold, `(n*m, c)` each, renamed to fit the best state."""
        names = self._labels(pool, messages)
        orders = [matched(states.labels[:, 0], names, pool.classes, pool.ranks) for states in found.states]
        return [part[:, order] for part, order in zip(parts, orders, strict=True)]

    def _named(
        self, pool: Pool, potential: Potential, messages: Tensor, held: Tensor, verification: Verification,
        prior: Tensor,
    ) -> tuple[Potential, Tensor, Namings]:  # fmt: skip
        """The namings that the formulas allow, by the messages `held (n*m, c, 1)` without each sample's own formula.

        If another naming is better, the best state is renamed and its messages are passed until they converge. If it is
        then more probable, it becomes the first in `messages (2P, c, states)`, and the namings refer to it.
        """
        heard = self.pool.tempered(held, verification.sharpness, self.settings.least_error) - self.pool.unary
        known = (self.known != 0).view(len(prior), -1).any(1)
        names = NamingSearch(
            self.pool, heard[:, :, 0], self._labels(pool, messages), self.settings, self.generator,
            wrong=verification.wrong, prior=prior, known=known,
        )  # fmt: skip
        namings = names.everywhere()
        best, present = namings.orders[0], torch.arange(pool.classes)
        if torch.equal(best, present):
            return potential, messages, namings
        rest, order = Schedule(2 * self.settings.rounds, still=self.settings.still), best.to(messages.device)
        other = potential.renamed(order)
        renamed, _ = propagate(pool, other, side_by_side(messages[:, order, :1]), rest)
        if float(score(pool, other, renamed).total) <= float(score(pool, potential, messages[:, :, :1]).total):
            return potential, messages, names.around(present, namings.orders, namings.exhaustive)
        namings = replace(namings, orders=best.argsort()[namings.orders])
        messages, _ = propagate(pool, other, side_by_side(renamed, messages[:, :, 1:]), rest)
        return other, messages, namings

    def out_of_time(self) -> bool:
        """Whether the deadline has passed on any rank."""
        if self.deadline is None:
            return False
        return self.pool.ranks.any(torch.tensor(monotonic() > self.deadline, device=self.pool.unary.device))

    def _found_again(self, pool: Pool, messages: Tensor, namings: Namings) -> bool:
        """Whether most folds lead to the best state or to another naming of it.

        `messages (2P, c, 1 + folds)` are those of the best state and of the state of each fold.
        """
        labels = pool.best(pool.heard(messages).add_(pool.unary))
        used = labels[:, 0] >= 0
        best, same = labels[used, 0], 0
        for state in labels[used, 1:].T:
            orders = namings.orders.to(state.device)
            match = matched(best, state, pool.classes, pool.ranks)
            orbit = namings.orbit.to(match.device)
            if not namings.exhaustive and bool((orbit[match] == orbit).all()):
                orders = torch.cat([orders, match[None]])
            differs = pool.ranks.mean(widened(orders[:, state] != best).T)  # (ways,)
            same += float(differs.min()) <= self.settings.negligible
        return 2 * same > labels.shape[1] - 1

    def _finalists(self, found: Found) -> Tensor:
        """The best state of each fold, `(n*m, states)`, the most probable first."""
        order = sorted(found.states, key=lambda states: -float(states.score[0]))
        labels = torch.cat([states.labels[:, :1] for states in order], 1)
        return labels[:, : self.pool.states_within(self.settings.memory)]

    def _fitted(self, pool: Pool, potential: Potential, labels: Tensor) -> tuple[Potential, Tensor]:
        """ψ fitted to the best of some labellings, and messages as from `_polished`."""
        if self.trust is not None:
            return potential, self._polished(pool, potential, labels, None)
        messages = self._polished(pool, potential, labels[:, :1], None)
        potential, messages = self._refitted(pool, potential, messages)
        messages = side_by_side(messages[:, :, :1])
        return potential, self._polished(pool, potential, labels, messages)

    def _polished(self, pool: Pool, potential: Potential, labels: Tensor, first: Tensor | None) -> Tensor:
        """Converged messages, `(2P, c, 1 + states)`: of the most probable state, then from each labelling.

        Args:
            pool: the pool.
            potential: ψ.
            labels: the labellings, `(n*m, states)`.
            first: additional messages to continue from, `(2P, c, 1)`, if any.
        """
        settings, states = self.settings, labels.shape[1]
        rest = Schedule(2 * settings.rounds, still=settings.still)
        hint = self._hints(pool, labels)
        messages, _ = propagate(pool, potential, zero_messages(pool, 2 * states), Schedule(settings.hurried), hint)
        if first is not None:
            messages = side_by_side(messages, first[:, :, :1])
        messages, _ = propagate(pool, potential, messages, rest)
        total = score(pool, potential, messages).total
        better = total[: 2 * states].view(2, states).argmax(0) * states + torch.arange(states, device=total.device)
        chosen = [int(total.argmax()), *better.tolist()]
        return side_by_side(*(messages[:, :, state : state + 1] for state in chosen))

    def _hints(self, pool: Pool, labels: Tensor) -> Tensor:
        """Labellings `(n*m, states)` as hints `(n*m, c, 2 * states)`: unchanged, and without labels on `islands`."""
        hint = one_hot(labels, pool.classes) * self.settings.hint
        closed = torch.stack([islands(pool.edges, state) < 0 for state in labels.T], 1)
        return torch.cat([hint, hint * closed[:, None]], 2)

    def _refitted(self, pool: Pool, potential: Potential, messages: Tensor) -> tuple[Potential, Tensor]:
        """ψ fitted to one state by expectation-maximisation, and the messages of the state after that."""
        settings = self.settings
        enough = pool.edges.count > settings.prior_pairs * pool.classes**2  # else the prior would determine q
        for _ in range(settings.fits):
            belief = pool.beliefs(pool.heard(messages).add_(pool.unary))
            potential = potential.refitted(
                pool, cavities(pool, messages, belief), belief[:, :, 0], settings.prior_pairs if enough else torch.inf
            )
            messages, _ = propagate(pool, potential, messages, Schedule(settings.hurried // 2, still=settings.still))
        return potential, messages

    def _held_out(self, pool: Pool, potential: Potential, found: Found, fold: int) -> Tensor:
        """The messages to instances in the state that was found without the formulas of a fold, `(n*m, c)`."""
        hint, hidden = self._hints(pool, found.states[fold].labels[:, :1]), (found.fold == fold)[:, None]
        schedule = Schedule(self.settings.rounds // 2, still=self.settings.still)
        sent, _ = propagate(pool, potential, zero_messages(pool, 2), schedule, hint, hidden)
        best = int(score(pool, potential, sent, hidden).total.argmax())
        return pool.heard(sent)[:, :, best]

    def _verified(self, pool: Pool, heard: Tensor, prior: Tensor) -> Verification:
        return verified(pool, heard, prior.masked_fill(self.impossible, torch.inf), self.wrong, self.settings)

    def _misfit(self, heard: Tensor, prior: Tensor, sharpness: float) -> float:
        prior = prior.masked_fill(self.impossible, torch.inf)
        return misfit_of(self.pool, heard, prior, sharpness, self.settings)

    def _leak(self) -> float:
        """`formula_leak` of the pool; 1 if it cannot be computed."""
        listed = listed_only(self.candidates)
        return 1.0 if listed is None else formula_leak(self.pool, formulas_of(listed, self.pool.ranks)[0])

    def _verdict(self, verification: Verification, found: Found) -> Verdict:
        settings = self.settings
        if not found.complete:
            return "unsettled"
        total = verification.gain * len(torch.unique(self.pool.first_copy))  # copies are no further evidence
        if total < settings.improbable:
            return "uninformative"
        believable = verification.explained >= settings.explained and verification.leak <= settings.leak
        return "joint" if believable else "unsettled"

    def _all_determined(self) -> bool:
        """Whether known labels and formulas leave a single candidate to each sample, so that nothing is inferred."""
        ranks = self.pool.ranks
        if not ranks.any(self.known != 0):
            return False
        left = self.candidates.narrowed(~self.pool.excluded).log_counts
        return not ranks.any((left != 0) & ~self.impossible)

    def _concluded(
        self, pool: Pool, potential: Potential, messages: Tensor, namings: Namings, verdict: Verdict,
        verification: Verification,
    ) -> Posterior[Set]:  # fmt: skip
        """The posterior that follows from all states and namings."""
        n, m, c = pool.factor.shape
        heard, sharpness = pool.heard(messages), verification.sharpness
        states = pool.best(heard + pool.unary)
        # If namings have weights of their own, states are compared under the naming of the first state.
        for state in range(1, states.shape[1] if self.trust is None else 1):
            order = matched(states[:, state], states[:, 0], c, pool.ranks)
            heard[:, :, state] = heard[:, order, state]
            used = states[:, state] >= 0
            states[used, state] = order.argsort()[states[used, state]]
        weight = region_weights(pool, states, score(pool, potential, messages), sharpness)
        used = pool.ranks.most(weight.amax(0)) > self.settings.still
        mistaken = 0.0 if self.trust is not None else self.settings.least_error
        heard = pool.tempered(heard[:, :, used], sharpness, mistaken) - pool.unary
        weight = weight[:, used].to(heard)
        solved = self._solved(pool, potential, sharpness)
        # No messages outweigh a known label: what it excludes is lowered by more than they can add.
        unary = pool.unary - 2 * heard.abs().max() * pool.excluded[:, :, None]
        mixture = Mixture(replace(pool, edges=pool.edges.apart, unary=unary), heard, weight, namings, solved)
        field = mixture.first
        each = torch.arange(n * m, device=field.device) // m
        inside = mixture.averaged(lambda field: pool.factor.marginals(field)[:, :, 0], each)
        free = mixture.averaged(lambda field: pool.independent(field)[:, :, 0], each)
        labels = (pool.best(field) if sharpness else states[:, :1])[:, 0]
        for sample, exact in solved.items():
            rows = self.candidates.batch([sample]).to_candidates().labels.long()  # (Ω_i, m)
            here = slice(sample * m, (sample + 1) * m)
            inside[here] = (widened(one_hot(rows.T, c)) @ exact).to(inside)
            labels[here] = rows[int(exact.argmax())]
        doubt = verification.suspicion.repeat_interleave(m)[:, None]
        marginals = inside.nan_to_num(0) * (1 - doubt) + free * doubt
        if not namings.exhaustive:  # every name in an orbit may be the right one
            orbit = namings.orbit.to(field.device)
            together = torch.zeros_like(marginals).index_add_(1, orbit, marginals)
            marginals = (together / torch.bincount(orbit, minlength=c).clamp(min=1))[:, orbit]
        counted, total = pool.edges.counted, pool.ranks.total
        cut = pool.edges.differs(labels[:, None])[counted, 0]
        strength = ((1 - potential.errors(pool)) * pool.others / potential.errors(pool)).log()[counted].clamp(min=0)
        return Posterior(
            self.candidates, self.graph, labels.view(n, m), marginals.view(n, m, c),
            energy=float(total(strength[cut].sum())) / max(float(total(strength.sum())), finfo(strength.dtype).eps),
            trust=potential.trust,
            confusion=equal_confusion(c).to(field) if potential.confusion is None else potential.confusion,
            verification=verification,
            verdict=verdict,
            mixture=mixture,
            settings=self.settings,
            support=self.support,
            traffic=pool.edges.shard.traffic,
        )  # fmt: skip

    def _solved(self, pool: Pool, potential: Potential, sharpness: float) -> dict[int, Tensor]:
        """The probability of each candidate of samples in small components with a cycle, by sample."""
        n, m, _ = pool.factor.shape
        edges, ranks = pool.edges, pool.ranks
        part = edges.components(m)
        busy = torch.zeros(n, dtype=torch.bool, device=part.device)
        busy[edges.first // m] = True
        busy[edges.second[: edges.inner] // m] = True
        sizes = ranks.total(torch.bincount(part[busy], minlength=pool.samples))
        part = part.masked_fill(~busy | (sizes[part] > self.settings.memory.bit_length()), -1)
        if ranks.size == 1:
            return self._worked_out(pool, self.candidates, potential, sharpness, part)
        crossing = torch.zeros(pool.samples, dtype=torch.bool, device=part.device)
        leaving = part[edges.first[edges.inner :] // m]
        crossing[leaving[leaving >= 0]] = True
        crossing = ranks.most(crossing)[part.clamp(min=0)] & (part >= 0)
        solved = self._worked_out(pool, self.candidates, potential, sharpness, part.masked_fill(crossing, -1))
        if ranks.any(crossing):
            ids, together, candidates = self._gathered(pool, part.masked_fill(~crossing, -1))
            first = edges.shard.first // m
            found = self._worked_out(together, candidates, potential, sharpness, together.edges.components(m))
            solved |= {int(ids[i]) - first: exact for i, exact in found.items() if 0 <= int(ids[i]) - first < n}
        return solved

    def _worked_out(
        self, pool: Pool, candidates: CandidateSet, potential: Potential, sharpness: float, part: Tensor
    ) -> dict[int, Tensor]:
        """As `_solved`, for components `part (n,)` with few combinations; -1 for samples of other components."""
        counts, solved = candidates.counts, dict[int, Tensor]()
        for name in torch.unique(part[part >= 0]).tolist():
            samples = (part == name).nonzero()[:, 0].tolist()
            if prod(counts[sample] for sample in samples) > self.settings.memory or not all(counts[s] for s in samples):
                continue
            if pool.disbelieved is not None and bool(pool.disbelieved[samples].any()):
                continue
            rows = {sample: candidates.batch([sample]).to_candidates().labels for sample in samples}
            solved |= exact_probabilities(pool, potential, sharpness, rows)
        return solved

    def _gathered(self, pool: Pool, part: Tensor) -> tuple[Tensor, Pool, CandidateSet]:
        """The samples of all ranks in components `part (n,)`, except components with too many combinations.

        Returns:
            Their ids over all ranks, their pool in one process, and their candidates.
        """
        (n, m, c), ranks, edges = pool.factor.shape, pool.ranks, pool.edges
        ways = torch.tensor([log(max(count, 1)) for count in self.candidates.counts], device=part.device).double()
        ways = ranks.total(ways.new_zeros(pool.samples).index_add_(0, part.clamp(min=0), ways * (part >= 0)))
        chosen = (part >= 0) & (ways[part.clamp(min=0)] < log(self.settings.memory) + 1)
        own = chosen.nonzero()[:, 0]

        def everybody(rows: Tensor) -> Tensor:
            return ranks.rows(rows, ranks.all_of(len(rows)))

        ids = everybody(own + edges.shard.first // m)
        candidates = of_all_ranks(self.candidates.batch(own).to_candidates(), ranks)
        doubted = torch.zeros_like(chosen) if pool.disbelieved is None else pool.disbelieved
        pairs = chosen[edges.first[edges.counted] // m].nonzero()[:, 0]
        first, second = (
            torch.searchsorted(ids, end // m) * m + end % m
            for end in (everybody(edges.shard.known_as(ends[pairs])) for ends in (edges.first, edges.second))
        )
        few = Edges(
            Shard.of(ALONE, len(ids) * m), first, second, everybody(edges.length[pairs]),
            everybody(edges.rank[pairs]),
        )  # fmt: skip
        unary, possible = (everybody(v.view(n, m, c)[own]).view(-1, c) for v in (pool.unary, pool.possible))
        factor = CandidateFactor(candidates)
        return ids, Pool(factor, few, unary[:, :, None], possible, pool.kinds, everybody(doubted[own])), candidates

    def with_classifier(self, log_probs: Tensor) -> Pool:
        """The pool with the output of a classifier as evidence, weighted by how well it predicts the formulas."""
        values = self.pool.ranks.agreed(lambda: _checked_log_probs(log_probs, self.candidates))
        # A classifier's log-odds are limited to twice those of a hint, so that the pool can outweigh them.
        evidence = values.to(self.pool.unary).clamp(min=-2 * self.settings.hint).reshape(self.pool.unary.shape)
        fold = torch.zeros(self.candidates.samples, dtype=torch.long, device=evidence.device)
        prior = prior_surprise(self.pool, fold, evidence[:, :, 0].argmax(1, keepdim=True), self.settings)
        sharpness = verified(self.pool, evidence, prior, self.wrong, self.settings).sharpness
        return replace(self.pool, unary=self.pool.unary + evidence * sharpness)

    def baseline(self) -> Posterior[Set]:
        """The baseline: expectation-maximisation over neighbours' averages."""
        pool, settings = self.pool, self.settings
        starts = 2 * settings.folds
        belief = (
            torch.rand(*pool.unary.shape[:2], starts, generator=self.generator).to(pool.unary)
            * pool.possible[:, :, None]
        )
        degree = torch.bincount(pool.edges.source, minlength=len(belief)).clamp(min=1)[:, None, None]
        rounds = settings.rounds // 2
        for step in range(rounds):
            belief = pool.beliefs((belief + finfo(belief.dtype).eps).log().add_(pool.unary))
            mean = pool.edges.around(belief.flatten(1)).view_as(belief) / degree
            belief = mean ** (1 + 2 * step / rounds)
        field = (belief + finfo(belief.dtype).eps).log()
        best = int(pool.surprise(field + pool.unary).sum(0).argmin())
        heard = field[:, :, best : best + 1]
        names = Namings.given(pool.classes)
        n, m, c = pool.factor.shape
        mixture = Mixture(pool, heard, pool.unary.new_ones(n, 1), names, {})
        fold = torch.zeros(n, dtype=torch.long, device=heard.device)
        prior = prior_surprise(pool, fold, pool.best(heard), settings).masked_fill(self.impossible, torch.inf)
        verification = verified(pool, heard, prior, 0.0, settings)
        return Posterior(
            self.candidates, self.graph, pool.best(heard + pool.unary).view(n, m),
            pool.beliefs(heard + pool.unary).view(n, m, c),
            energy=float(pool.edges.differs(pool.best(heard + pool.unary)).float().mean()) if len(pool.edges) else 0.0,
            trust=Trust(*settings.first_trust), confusion=equal_confusion(c).to(heard), verification=verification,
            verdict="joint", mixture=mixture, settings=settings,
        )  # fmt: skip


def _of_folds(pool: Pool, found: Found, parts: list[Tensor]) -> Tensor:
    """For each sample, the rows of the part `(n*m, c)` of its own fold, `(n*m, c, 1)`."""
    fold = found.fold.repeat_interleave(pool.factor.shape[1])[:, None, None].expand(-1, pool.classes, 1)
    return torch.stack(parts, 2).gather(2, fold)


def _pool_of(
    candidates: CandidateSet, graph: ProximityGraph, known: Tensor | None, wrong: float | None, ranks: Ranks
) -> tuple[Pool, Tensor]:
    """The pool as a graphical model, and the samples whose formula no labels satisfy, `(n,)` bool."""
    instances = candidates.samples * candidates.slots
    unary = torch.zeros(instances, candidates.classes, 1, device=candidates.device)
    kinds = [range(kind.start, kind.stop) for kind in candidates.kinds]
    kind = torch.repeat_interleave(
        torch.arange(len(kinds), device=candidates.device),
        torch.tensor([len(k) for k in kinds], device=candidates.device),
    )  # (c,)
    possible = kind == candidates.kind.reshape(-1, 1)
    pool = Pool(factor_of(candidates, ranks), Edges.of(graph, instances, ranks), unary, possible, kinds)
    return ranks.agreed(lambda: _with_known(pool, candidates, known, wrong))


def _with_known(pool: Pool, candidates: CandidateSet, known: Tensor | None, wrong: float | None) -> tuple[Pool, Tensor]:
    """The pool with known labels, and the samples whose formula no labels satisfy then, `(n,)` bool."""
    if known is not None:
        pool = replace(pool, unary=_known_labels(known, pool, candidates))
    floor = torch.tensor(finfo(pool.unary.dtype).tiny).log() / 2  # a sample with a candidate left is above it
    impossible = (pool.factor.evidence(pool.unary)[:, 0] < floor.to(pool.unary)).nan_to_num(1).bool()
    if bool(impossible.any()):
        refuted = impossible & (candidates.log_counts > -torch.inf)  # not those that never had a candidate
        if wrong == 0 and bool(refuted.any()):
            sample = int(refuted.nonzero()[0])
            raise InputError(
                f"expected every sample to have a candidate with its known labels, got none for sample {sample}; "
                "correct the labels, or pass wrong= above 0 to let targets be wrong"
            )
        pool = replace(pool, disbelieved=impossible)
    return pool, impossible


def _known_labels(known: Tensor, pool: Pool, candidates: CandidateSet) -> Tensor:
    """Log-odds `(n*m, c, 1)` that fix the known labels."""
    labels = as_tensor(known, "known", candidates.device)
    shape = (candidates.samples, candidates.slots)
    if tuple(labels.shape) != shape or labels.is_floating_point() or labels.dtype == torch.bool:
        raise InputError(
            f"expected known labels of shape {shape}, whole numbers, -1 where unknown, got {labels.dtype} of shape "
            f"{tuple(labels.shape)}"
        )
    labels = labels.reshape(-1, 1).long()
    here = labels >= 0
    fits = here & (labels < pool.classes) & pool.possible.gather(1, labels.clamp(0, pool.classes - 1))
    if bool((here & ~fits).any()) or bool((labels < -1).any()):
        instance = int(((here & ~fits) | (labels < -1)).nonzero()[0, 0])
        raise InputError(
            f"expected known labels of their slot's kind, or -1, got {int(labels[instance])} in slot "
            f"{instance % shape[1]} of sample {instance // shape[1]}"
        )
    lowest = torch.tensor(finfo(pool.unary.dtype).tiny).log().to(pool.unary)
    other = here & (labels != torch.arange(pool.classes, device=labels.device))
    return torch.where(other, lowest, 0.0)[:, :, None].to(pool.unary)


def _checked_log_probs(log_probs: Tensor, candidates: CandidateSet) -> Tensor:
    """`(n, m, c)`, zero in unused slots."""
    values = as_tensor(log_probs, "log_probs", candidates.device).detach()
    check_log_probs(values, candidates)
    values = values.masked_fill(candidates.kind[..., None] < 0, 0)  # unused slots may hold anything
    if bool((values.isnan() | (values == torch.inf)).any()):
        raise InputError("expected log_probs without NaN and infinity, got some; check the classifier's output")
    return values


def _check_alike(ranks: Ranks, *options: object) -> None:
    """Raise an `InputError` if ranks have different options, or some that no group has."""
    if any(other != options for other in ranks.all_of(options)):
        raise InputError(
            "expected the same trust, seed, starts, wrong, settings, method and deadline on every rank, and known= and "
            f"log_probs= on all of them or on none, got {options} on rank {ranks.rank} and others elsewhere"
        )
    if "em" in options or not options[-1]:
        raise InputError('expected neither previous= nor method="em" with a group, got one; leave it or the group out')


def _checked_trust(trust: Trust | float | None, settings: InferenceSettings) -> Trust | None:
    if trust is None or (isinstance(trust, Trust) and isfinite(trust.level) and isfinite(trust.slope)):
        return trust
    return Trust.constant(
        real_number(trust, "trust, the share of disagreeing pairs,", least=settings.still**2, below=1)
    )
