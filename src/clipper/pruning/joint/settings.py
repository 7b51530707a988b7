"""InferenceSettings: all constants of joint inference that affect the result, with reasons; and the size of blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class InferenceSettings:
    """The constants of joint inference; docs/joint.md says where each of them is used.

    Attributes:
        folds: the number of parts of the pool. The formulas of each part are hidden in turn, to test the messages of
            the others.
        starts: the number of states that one generation of the search propagates in parallel, over all folds.
        rounds: the number of rounds of messages in which the noise of a new state decreases.
        generations: the largest number of generations of the search; it ends earlier if all folds have found the same
            groups.
        noise: log-odds of the noise at the start of a state.
        hint: log-odds of the labels that a state starts from.
        searched: the number of neighbours of each instance during the search; later, all neighbours are used.
        first_trust: level and slope of the trust before it is fitted: a pair of typical length disagrees with a
            probability of a fifth to a sixth.
        least_error: the lowest probability that a pair disagrees. With zero, no evidence could outweigh a message.
        rarest: agreement on a rare label counts at most this many times as much as agreement on a typical label.
        prior_pairs: the number of pseudo-pairs for each two labels, confused at chance level; they regularise the
            fitted confusion if there are few real pairs.
        still: the tolerance for convergence: of a message, of the share of messages that change, of a probability.
        negligible: shares below this count as zero: of the instances in which two states differ, of the instances that
            a label would have if all labels were equally frequent, and of the samples that contradict the messages.
        walkers: the number of parallel searches for other namings.
        improbable: in nats. A naming is ruled out if the formulas are less probable under it than under the best naming
            by this much. The neighbours' messages are used only if they make the hidden formulas more probable in total
            by this much.
        explained: the share of the hidden formulas' surprise that the neighbours' messages must explain. In small pools
            of pure noise, they explain a little by chance.
        leak: the largest allowed ratio of the odds that an edge joins samples with the same formula to the odds
            expected by chance.
        alike: samples that contradict their neighbours' messages look alike if contradictions are correlated along the
            edges by more than this. The correlation is about 0.1 if one class in ten is missing from the labels, and up
            to 0.025 in large pools of noisy embeddings.
        certain: how many standard errors the correlation must exceed.
        memory: the largest number of tensor elements held at a time.
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
    alike: float = 0.04
    certain: float = 4.0
    memory: int = 1 << 22

    block: ClassVar[int] = 1 << 18
    """Tensor elements processed at a time, so that they fit into the processor's cache; no result depends on it."""
    kept_when_freed: ClassVar[int] = 1 << 25
    """Bytes of the largest block that glibc's allocator may keep when it is freed; no result depends on it."""
    mass: ClassVar[float] = 0.95
    """The default `mass` of `Posterior.prune`."""
    sure: ClassVar[float] = 0.9
    """A label below this probability is reported as unsure."""
    measured_masses: ClassVar[tuple[float, ...]] = (0.5, 0.8, 0.9, 0.95, 0.99)
    """The masses at which a calibration measures the kept gold labels; it has twice as many bins."""

    @property
    def hurried(self) -> int:
        """The number of rounds for a first estimate and for the refinement of a state: a quarter of `rounds`."""
        return self.rounds // 4

    @property
    def fits(self) -> int:
        """The number of steps of expectation-maximisation that fit ψ."""
        return self.rounds // 20

    @property
    def sharpness(self) -> list[float]:
        """The factors on the messages' log-odds among which `verified` chooses."""
        return [0.0, *(2 ** (step / 4 - 6) for step in range(33))]

    @property
    def exchanges(self) -> int:
        """The number of exchanges that a walker tries, for each label."""
        return 16


def blocks(rows: int, width: int) -> list[slice]:
    """Split `rows` rows of `width` numbers into consecutive slices of about `InferenceSettings.block` numbers.

    Examples:
        >>> blocks(5, InferenceSettings.block // 2)
        [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = max(1, InferenceSettings.block // max(1, width))
    return [slice(begin, min(begin + step, rows)) for begin in range(0, rows, step)]
