"""Rule: a function of labels, optionally also as a state machine, and the candidates of its targets.

The ready-made rules are in `clipper.rules`. The state machines in this module are used by the library itself.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from torch import Tensor

from clipper.arguments import as_list, one_of, shown, whole_number
from clipper.candidates.abduction import BUDGET, check_not_text
from clipper.candidates.base import CandidateSet, Impossible, outside_inference_mode
from clipper.candidates.kinds import Classes, kinds_of
from clipper.candidates.task import as_python, called, check_longest, numbered, targets_and_lengths
from clipper.errors import InputError

if TYPE_CHECKING:
    from clipper.candidates.lattice import Lattice

ARCS = 20_000_000
"""Default limit of the arcs of a rule's lattice: enough for formulas of 15 symbols."""

Step = Callable[[Any, int], Any]
Accept = Callable[[Any], Hashable]


class Machine(NamedTuple):
    """A rule that reads labels one after the other; unpack it into `Lattice.from_rule(*machine, targets, …)`.

    Attributes:
        start: the state before the first label.
        step: from a state and a label to the next state; None if the label cannot follow.
        accept: from a final state to the target; None if no sample can end there.
    """

    start: Hashable
    step: Step
    accept: Accept


def run(machine: Machine, labels: Sequence[int]) -> Hashable:
    """The target that a machine assigns to one tuple of labels; None if it assigns none.

    Args:
        machine: the machine.
        labels: the labels, in order.

    Examples:
        >>> run(SUM, (3, 5)), run(MAX, (3, 5)), run(HWF, (1, 9, 2, 11, 3))  # the last is 2 + 3 × 4
        (8, 5, 14)
    """
    state = machine.start
    for label in labels:
        state = machine.step(state, label)
        if state is None:
            return None
    return machine.accept(state)


def itself(state: Hashable) -> Hashable:
    """The last step of a machine whose final state is the target."""
    return state


SUM = Machine(0, operator.add, itself)
"""The sum of the labels."""
MAX = Machine(0, max, itself)
"""The largest label."""


def _stay_or_go_on(place: int, label: int) -> int | None:
    return label if label - place in (0, 1) else None


def _passed(place: int) -> int:
    return place + 1


PLACES = Machine(-1, _stay_or_go_on, _passed)
"""The number of places visited: labels are places 0, 1, 2 … in order, without gaps."""

_PLUS, _MINUS, _TIMES = 9, 10, 11


def _formula(state: tuple[int, int, int], label: int) -> tuple[int, int, int] | None:
    """A state is the sum of the finished terms, the last term, and the operator before the next digit (-1 for none)."""
    total, term, operator = state
    if operator < 0:
        if label not in (_PLUS, _MINUS, _TIMES):
            return None
        return (total, term, label) if label == _TIMES else (total + term, 0, label)
    if label > 8:
        return None
    digit = label + 1
    return (total, term * digit, -1) if operator == _TIMES else (total, digit if operator == _PLUS else -digit, -1)


def _value(state: tuple[int, int, int]) -> int | None:
    total, term, operator = state
    return total + term if operator < 0 else None


HWF = Machine((0, 0, _PLUS), _formula, _value)
"""The value of a formula that alternates digits and + − ×, with × before + and −: labels 0–8 are the digits 1–9, 9–11
are + − ×."""


def checked_machine(machine: Any) -> Machine:
    """A caller's machine, wrapped so that the result of each call of `step` and `accept` is checked.

    Raises:
        InputError: if it is not a tuple of start, step and accept, or the start is not hashable.
    """
    try:
        start, step, accept = machine
        hash(start)
        if isinstance(start, Tensor):
            raise TypeError("tensors are hashed by identity")
    except (TypeError, ValueError) as error:
        raise InputError(
            f"expected a machine of start, step and accept, the start hashable and not a tensor, got {shown(machine)}"
        ) from error
    return Machine(
        start,
        partial(called, step, what="step", returns="a hashable state, or None where the label cannot follow"),
        partial(called, accept, what="accept", returns="a hashable target, or None where a sample cannot end"),
    )


@dataclass(frozen=True)
class Rule:
    """What you know about a sample: the value of a function of its labels.

    `clipper.rules` has ready-made rules. `Candidates.from_rule` takes a rule in place of a function.

    Attributes:
        name: the name of the rule.
        value: from a tuple of labels, one per slot, to the target; arithmetic is computed for all combinations at once.
        domains: from the number of slots to the labels that each slot may have; all labels if not given.
        machine: the same rule as a state machine; with it, candidates need not be listed.
        slots: how many slots a sample has; any number if not given.

    Examples:
        >>> rule = Rule("sum", sum, machine=SUM)
        >>> rule.candidates([8, 2], slots=2, classes=10)
        Candidates(2 samples, 12 candidates, 2 slots, 10 classes)
        >>> rule.candidates([8, 135], slots=[2, 30], classes=10)
        Lattice(2 samples, 30 slots, 10 classes, 2,056 states)
    """

    name: str
    value: Callable[..., Any]
    domains: Callable[[int], Sequence[Sequence[int]]] | None = None
    machine: Machine | None = None
    slots: int | None = None

    def __post_init__(self) -> None:
        if self.machine is not None:
            checked_machine(self.machine)

    @outside_inference_mode
    def candidates(
        self,
        targets: Any,
        slots: int | Sequence[int],
        classes: Classes,
        *,
        domains: Sequence[Sequence[int]] | None = None,
        budget: int = BUDGET,
        impossible: Impossible = "refuse",
    ) -> CandidateSet:
        """All label combinations that give the target of each sample: listed if they are few, else a lattice.

        Args:
            targets: the target of each of the `n` samples.
            slots: how many inputs a sample has; a list for samples of different lengths.
            classes: the number of labels, or a mapping from each kind of label to its number.
            domains: the labels that each slot may have; those of the rule if not given.
            budget: the largest number of candidates to list, of all samples together; for a rule without a state
                machine, the largest number of label combinations to try.
            impossible: "refuse" a target that no labels satisfy, or "keep" its sample without candidates.

        Returns:
            `Candidates` or a `Lattice`.

        Raises:
            InputError: if the rule cannot have such a target, or no labels satisfy it.
            BudgetError: if the rule has too many states, or no state machine and too many combinations.
        """
        budget = whole_number(budget, "budget", least=0)
        if self.machine is None:
            from clipper.candidates.table import Candidates

            wanted, lengths = self._read(targets, slots, classes)
            taken = self._domains(domains, lengths, budget)
            return Candidates.from_rule(
                self.value, wanted, lengths, classes, domains=taken, budget=budget, impossible=impossible
            )
        distinct, place = self._distinct(targets, slots, classes, domains, ARCS, impossible)
        counts = distinct.counts
        if sum(counts[i] for i in place.tolist()) > budget:
            return distinct.batch(place)
        listed = distinct.to_candidates(budget)
        _ = listed.support_with_unused, listed.plain  # computed for few rows, inherited by all samples
        return listed.batch(place)

    @outside_inference_mode
    def lattice(
        self,
        targets: Any,
        slots: int | Sequence[int],
        classes: Classes,
        *,
        domains: Sequence[Sequence[int]] | None = None,
        budget: int = ARCS,
        impossible: Impossible = "refuse",
    ) -> Lattice:
        """As `candidates`, but always a lattice.

        Args:
            targets: as for `candidates`.
            slots: as for `candidates`.
            classes: as for `candidates`.
            domains: as for `candidates`.
            budget: the largest number of arcs.
            impossible: as for `candidates`.

        Raises:
            InputError: if the rule has no state machine or cannot have such a target, or no labels satisfy it.
            BudgetError: if there are more arcs than the budget.

        Examples:
            >>> Rule("sum", sum, machine=SUM).lattice([8, 2], slots=2, classes=10)
            Lattice(2 samples, 2 slots, 10 classes, 12 states)
        """
        distinct, place = self._distinct(targets, slots, classes, domains, budget, impossible)
        return distinct.batch(place)

    def target(self, given: Any, slots: int, classes: int) -> Hashable:
        """Convert a target from the form that users pass to the form that `value` returns.

        Args:
            given: what the caller passed for this sample.
            slots: the number of slots of the sample.
            classes: the number of labels.
        """
        del slots, classes
        target: Hashable = given
        return target

    def parse(self, text: str) -> Any:
        """A target from text, such as the cell of a table: a whole number if possible, else the text itself.

        Args:
            text: the text.
        """
        try:
            return int(text)
        except ValueError:
            return text

    def _distinct(
        self, targets: Any, slots: Any, classes: Classes, domains: Any, budget: int, impossible: Impossible
    ) -> tuple[Lattice, Tensor]:
        """The lattice of all different pairs of length and target, and which of them each sample has, `(n,)`."""
        if self.machine is None:
            raise InputError(
                f"expected a rule with a state machine, got {self.name!r}; give it machine=, or call candidates() "
                "instead of lattice()"
            )
        one_of(impossible, "impossible", get_args(Impossible))
        wanted, lengths = self._read(targets, slots, classes)
        pairs, place = numbered(zip(lengths, wanted, strict=True))
        own, distinct = [length for length, _ in pairs], [target for _, target in pairs]
        lattice = self._lattice(distinct, own, classes, self._domains(domains, lengths, budget), budget)
        missing = lattice.impossible
        if impossible == "refuse" and missing is not None:
            sample = int(missing[place].nonzero()[0])
            check_not_text(wanted[sample], sample, self.value, (0,) * lengths[sample])
            raise InputError(
                f"sample {sample}: no labels of {lengths[sample]} slots give the rule {self.name!r} the target "
                f"{shown(wanted[sample])}; correct it, leave the sample out, or keep it without candidates "
                "with impossible='keep'"
            )
        return lattice, place

    def _lattice(
        self, targets: list[Hashable], lengths: list[int], classes: Classes, domains: Any, budget: int
    ) -> Lattice:
        """The lattice of targets as `target` returns them; targets that no labels satisfy are kept."""
        from clipper.candidates.lattice import Lattice

        machine = self._machine(targets)
        return Lattice.from_rule(*machine, targets, lengths, classes, domains=domains, budget=budget, impossible="keep")

    def _machine(self, targets: list[Hashable]) -> Machine:
        """The state machine; rules whose states depend on the targets override this."""
        del targets
        assert self.machine is not None
        return self.machine

    def _read(self, targets: Any, slots: Any, classes: Classes) -> tuple[list[Hashable], list[int]]:
        """The target of each sample, as `value` returns it, and its number of slots."""
        given = as_list(targets, "targets, one for each sample,")
        _, lengths = targets_and_lengths(range(len(given)), slots)
        for length in lengths if self.slots is not None else ():
            if length != self.slots:
                raise InputError(f"expected samples of {self.slots} slots for the rule {self.name!r}, got {length}")
        labels = kinds_of(classes)[-1].stop
        wanted = []
        for i, (target, length) in enumerate(zip(given, lengths, strict=True)):
            try:
                wanted.append(self.target(as_python(target), length, labels))
            except InputError as error:
                raise InputError(f"sample {i}: {error}") from error
        return targets_and_lengths(wanted, lengths)

    def _domains(self, given: Any, lengths: list[int], budget: int) -> Any:
        """The labels of each slot: the caller's, else the rule's own, else None for all."""
        check_longest(lengths, budget)
        if given is not None or self.domains is None:
            return given
        return self.domains(max(lengths))
