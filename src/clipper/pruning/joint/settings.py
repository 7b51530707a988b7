"""InferenceSettings: every number of joint inference that changes an answer, with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class InferenceSettings:
    """The constants of joint inference. docs/joint.md has the ablation that each of them earned its place in.

    Attributes:
        folds: parts of the pool whose formulas are hidden in turn, so that they can judge what the others say.
        starts: states that are propagated side by side in one generation of the search, over all folds.
        rounds: rounds of messages in which a state cools down; a first, hurried try has a quarter of them.
        generations: generations of the search, at most.
        patience: generations without a better state after which a search ends.
        noise: log-odds of the noise that a state begins with.
        hint: log-odds of a label that a state begins with.
        opened: the largest share of the pool that is opened again around a random instance.
        searched: neighbours of each instance that the search looks at; all of them count in the end.
        first_trust: level and slope of the trust before anything is fitted.
        toss_up: other namings must have this probability together to count as possible.
        least_error: no pair disagrees less often than this: a message of certainty could never be outvoted.
        rarest: agreement on a rare label counts at most this many times as much as on a typical one.
        prior_pairs: pairs for each two labels that say nothing about their confusion, so that few pairs make no law.
        still: a change smaller than this, of a message or of the share of instances, counts as none.
        alike: states that differ in no more than this share of the instances count as one.
        walkers: searches for other names of the labels, side by side.
        improbable: nats by which the formulas must be against a state or a naming for it to be out of the question.
        significant: standard errors by which hidden formulas must be foreseen better than by a class prior.
        spread: nats that gains are taken to vary at least; or equal ones would make any gain certain.
        explained: the share of the hidden formulas' surprise that must be explained.
        leak: how many times the odds of chance may be the odds that an edge joins samples of one formula.
        memory: numbers held at a time.
    """

    folds: int = 5
    starts: int = 60
    rounds: int = 160
    generations: int = 6
    patience: int = 2
    noise: float = 2.0
    hint: float = 4.0
    opened: float = 0.15
    searched: int = 3
    first_trust: tuple[float, float] = (-1.5, 3.0)
    toss_up: float = 0.05
    least_error: float = 0.01
    rarest: float = 4.0
    prior_pairs: float = 3.0
    still: float = 1e-3
    walkers: int = 16
    alike: float = 0.05
    improbable: float = 10.0
    significant: float = 3.0
    spread: float = 0.1
    explained: float = 0.2
    leak: float = 4.0
    memory: int = 1 << 22
