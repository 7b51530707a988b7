"""Times functions against one another: every round calls all of them, so that other load affects all of them."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from clipper.arguments import StageProgress

Setting = tuple[Callable[[], Any], Mapping[str, Callable[[Any], object]]]
"""One round: a function that makes an input, and the contestants: the functions to time on such inputs, by name."""
WARM_UP = 3
"""Rounds before the clock starts."""


@dataclass(frozen=True)
class Times:
    """The measured times.

    Attributes:
        seconds: of each contestant, its time in each round.

    Examples:
        >>> times = Times({"quick": [0.001, 0.002, 0.003], "slow": [0.002, 0.008, 0.006]})
        >>> times.milliseconds
        {'quick': 2.0, 'slow': 6.0}
        >>> times.ratio("slow", "quick")
        2.0
    """

    seconds: Mapping[str, list[float]]

    @property
    def rounds(self) -> int:
        """How many rounds there were, the warm-up not counted."""
        return len(next(iter(self.seconds.values())))

    @property
    def milliseconds(self) -> dict[str, float]:
        """The median of each contestant."""
        return {name: 1e3 * statistics.median(values) for name, values in self.seconds.items()}

    def ratio(self, slow: str, quick: str) -> float:
        """The time of one contestant divided by that of another: the median of the rounds' ratios."""
        return statistics.median(a / b for a, b in zip(self.seconds[slow], self.seconds[quick], strict=True))


def compare_times(
    setting_of: Callable[[int], Setting],
    rounds: int,
    *,
    best_of: int = 1,
    tick: Callable[[], None] = lambda: None,
) -> Times:
    """Time functions, the contestants, against one another.

    Args:
        setting_of: from the number of a round to its setting.
        rounds: how many rounds count, after `WARM_UP` rounds that do not; every second round reverses the order.
        best_of: calls of a contestant per round; the fastest counts.
        tick: called after each round, the warm-up included.

    Examples:
        >>> times = compare_times(lambda turn: (lambda: list(range(turn)), {"sum": sum, "sort": sorted}), rounds=3)
        >>> times.rounds, sorted(times.milliseconds)
        (3, ['sort', 'sum'])
    """
    seconds: dict[str, list[float]] = {}
    for turn in range(WARM_UP + rounds):
        new_input, contestants = setting_of(turn)
        if not seconds:
            seconds = {name: [] for name in contestants}
        for name in list(contestants)[:: 1 if turn % 2 else -1]:
            spent = time_of(contestants[name], new_input, best_of)
            seconds[name] += [spent] if turn >= WARM_UP else []
        tick()
    return Times(seconds)


def ticks(progress: StageProgress, stage: str, total: int) -> Callable[[], None]:
    """A function that reports one more step whenever it is called."""
    done = count(1)
    return lambda: progress(stage, next(done), total)


def time_of(call: Callable[[Any], object], new_input: Callable[[], Any], best_of: int = 1) -> float:
    """Seconds of the fastest of some calls; each gets its own input, made before the clock starts."""
    seconds = []
    for _ in range(best_of):
        argument = new_input()
        start = time.perf_counter()
        call(argument)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def peak_gigabytes() -> float | None:
    """The peak memory of this process in gigabytes (10⁹ bytes); None if the system does not report it."""
    peak = _peak_bytes()
    return None if peak is None else peak / 1e9


def peak_megabytes() -> float | None:
    """The peak memory of this process in megabytes (2²⁰ bytes); None if the system does not report it."""
    peak = _peak_bytes()
    return None if peak is None else peak / 2**20


def _peak_bytes() -> int | None:
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would also count the memory that the process had before it started this program
        found = [line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        return int(found[0]) * 1024 if found else None
    if sys.platform == "win32":
        return None
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
