"""InferenceSettings: every number of joint inference that changes an answer, with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class InferenceSettings:
    """The constants of joint inference; docs/joint.md says where each of them is used.

    Attributes:
        folds: parts of the pool. The formulas of each part are hidden in turn, to test what the others say.
        starts: states that one generation of the search propagates side by side, over all folds.
        rounds: rounds of messages in which a state cools down.
        generations: most generations of the search; it ends earlier if all folds have found the same groups.
        noise: log-odds of the noise that a state begins with.
        hint: log-odds of a label that a state begins with.
        searched: neighbours of each instance during the search; afterwards all of them count.
        first_trust: level and slope of the trust before it is fitted: a pair of typical length disagrees once in five
            or six times.
        least_error: the lowest probability that a pair disagrees. If it were zero, nothing could outvote a message.
        rarest: agreement on a rare label counts at most this many times as much as agreement on a typical label.
        prior_pairs: imagined pairs for each two labels, which are confused by chance; they keep the fitted confusion
            steady where real pairs are few.
        still: changes below this count as none: of a message, of the share of messages that move, of a probability.
        negligible: shares below this count as none: of the instances in which two states differ, and of the instances
            that a label would have if all labels were as frequent.
        walkers: searches for other names of the labels, side by side.
        improbable: nats. A naming is ruled out if the formulas are this much less probable under it than under the best
            one. What neighbours say counts at all if it makes the hidden formulas this much more probable in total.
        explained: the share of the hidden formulas' surprise that neighbours must explain. Small pools of noise explain
            a little by chance.
        leak: an edge may join samples of one formula with at most this many times the odds of chance.
        memory: numbers held at a time.
    """

    folds: int = 5
    starts: int = 60
    rounds: int = 160
    generations: int = 6
    noise: float = 2.0
    hint: float = 4.0
    searched: int = 3
    first_trust: tuple[float, float] = (-1.5, 3.0)
    least_error: float = 0.01
    rarest: float = 4.0
    prior_pairs: float = 3.0
    still: float = 1e-3
    negligible: float = 0.05
    walkers: int = 16
    improbable: float = 10.0
    explained: float = 0.2
    leak: float = 4.0
    memory: int = 1 << 22

    block: ClassVar[int] = 1 << 18
    """Numbers that are worked on at a time, so that they stay in a processor's cache; no answer depends on it."""
    kept_when_freed: ClassVar[int] = 1 << 25
    """Bytes of the largest block that glibc's allocator may keep when it is freed; no answer depends on it."""
    mass: ClassVar[float] = 0.95
    """What `Posterior.prune` keeps if it is not told."""
    sure: ClassVar[float] = 0.9
    """A label below this probability is reported as unsure."""
    measured_masses: ClassVar[tuple[float, ...]] = (0.5, 0.8, 0.9, 0.95, 0.99)
    """The masses, and half as many as the bins, that a calibration looks at."""

    @property
    def hurried(self) -> int:
        """Rounds of a first try, and of a state that is polished: a quarter."""
        return self.rounds // 4

    @property
    def fits(self) -> int:
        """Steps of expectation-maximisation in which ψ is fitted."""
        return self.rounds // 20

    @property
    def sharpness(self) -> list[float]:
        """The factors on what was heard that the hidden formulas choose from."""
        return [0.0, *(2 ** (step / 4 - 6) for step in range(33))]

    @property
    def exchanges(self) -> int:
        """Exchanges that a walker tries, for each label."""
        return 16
