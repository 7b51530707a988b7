"""Ready-made rules: what you may know about a sample whose labels you do not know.

Each function returns a `Rule`. `Candidates.from_rule(rule, targets, slots, classes)` and `rule.candidates(…)` compute
the candidates from a rule and the target of each sample: a list if there are few, else a lattice. Samples may have
different numbers of slots.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from clipper.arguments import shown, whole_number, whole_numbers, yes_or_no
from clipper.candidates.rules import MAX, PLACES, SUM, Machine, Rule, itself, run
from clipper.errors import InputError
from clipper.rules import steps, targets
from clipper.rules.targets import integer, label_number

__all__ = [
    "Machine", "Rule", "addition", "all_different", "at_least_one", "checksum", "count", "exactly_one", "iban", "isbn",
    "largest", "luhn", "named", "none", "ordered", "partial_labels", "proportions", "smallest", "total", "transcript",
    "weighted_sum",
]  # fmt: skip


def total() -> Rule:
    """You know the sum of the labels, such as the total of a receipt.

    Examples:
        >>> total().candidates([8, 2], slots=2, classes=10).counts
        [9, 3]
    """
    return Rule("sum", sum, machine=SUM)


def weighted_sum(weights: Sequence[int]) -> Rule:
    """You know the sum of the labels, each multiplied by the weight of its slot.

    Args:
        weights: a whole number for each slot.

    Raises:
        InputError: the weights are not a list of whole numbers.

    Examples:
        >>> weighted_sum([10, 1]).candidates([42], slots=2, classes=10).labels.tolist()  # a number of two digits
        [[4, 2]]
    """
    factors = _whole(weights, "weights, one for each slot,")
    machine = Machine((0, 0), partial(steps.weigh, factors, None), steps.second)
    return Rule("weighted-sum", partial(run, machine), machine=machine, slots=len(factors))


def checksum(weights: Sequence[int], modulus: int = 10) -> Rule:
    """You know the remainder of the weighted sum when divided by a modulus: 0 for most check digits.

    Args:
        weights: a whole number for each slot; they are repeated if there are more slots: `[3, 7, 1]` for a routing
            number.
        modulus: the divisor.

    Raises:
        InputError: the weights are not whole numbers, or the modulus is below 2.

    Examples:
        >>> rule = checksum([3, 1, 7, 9], modulus=10)
        >>> rule.candidates([0, 4], slots=4, classes=10)  # 4 digits each, with remainders 0 and 4
        Candidates(2 samples, 2,000 candidates, 4 slots, 10 classes)
    """
    factors, divisor = _whole(weights, "weights"), whole_number(modulus, "modulus", least=2)
    machine = Machine((0, 0), partial(steps.weigh, factors, divisor), steps.second)
    return targets.Remainder("checksum", partial(run, machine), machine=machine)


def luhn() -> Rule:
    """You know whether the digits pass the Luhn check of payment cards; the check digit is the last slot.

    Targets are True, or False for numbers that fail the check.

    Examples:
        >>> rule = luhn()
        >>> rule.value((7, 9, 9, 2, 7, 3, 9, 8, 7, 1, 3)), rule.value((7, 9, 9, 2, 7, 3, 9, 8, 7, 1, 4))
        (True, False)
        >>> rule.candidates([True], slots=16, classes=10)
        Lattice(1 samples, 16 slots, 10 classes, 1,379 states)
    """
    machine = Machine((0, 0), steps.luhn_step, steps.luhn_passed)
    return targets.YesNo("luhn", partial(run, machine), steps.digits, machine)


def isbn(digits: int = 13) -> Rule:
    """You know whether the digits are a valid ISBN, check digit included; targets are True or False.

    Args:
        digits: 13 or 10. In an ISBN-10 the last slot may be X, which is label 10, so there are 11 classes.

    Raises:
        InputError: there is no ISBN with so many digits.

    Examples:
        >>> isbn().value((9, 7, 8, 0, 3, 0, 6, 4, 0, 6, 1, 5, 7)), isbn(10).value((0, 3, 0, 6, 4, 0, 6, 1, 5, 2))
        (True, True)
    """
    if whole_number(digits, "digits") not in (10, 13):
        raise InputError(f"expected an ISBN of 10 or 13 digits, got {shown(digits)}")
    weights, modulus = ((1, 3), 10) if digits == 13 else (tuple(range(10, 0, -1)), 11)
    machine = Machine((0, 0), partial(steps.weigh, weights, modulus), steps.no_remainder)
    domains = steps.digits if digits == 13 else steps.digits_and_x
    return targets.YesNo("isbn", partial(run, machine), domains, machine, slots=int(digits))


def iban() -> Rule:
    """You know whether the characters are a valid IBAN, by its check modulo 97; targets are True or False.

    Slots are in the order of the check: the first four characters of the IBAN come last. Labels 0–9 are digits, 10–35
    are the letters A–Z. If all characters are digits, 10 classes are enough.

    Examples:
        >>> characters = "WEST12345698765432GB82"  # GB82 WEST 1234 5698 7654 32
        >>> iban().value(tuple(int(character, 36) for character in characters))
        True
    """
    machine = Machine(0, steps.modulo_97, steps.is_one)
    return targets.YesNo("iban", partial(run, machine), machine=machine)


def largest() -> Rule:
    """You know the largest label.

    Examples:
        >>> largest().candidates([1], slots=2, classes=10).labels.tolist()
        [[0, 1], [1, 0], [1, 1]]
    """
    return Rule("max", max, machine=MAX)


def smallest() -> Rule:
    """You know the smallest label.

    Examples:
        >>> smallest().candidates([8], slots=2, classes=10).labels.tolist()
        [[8, 8], [8, 9], [9, 8]]
    """
    return Rule("min", min, machine=Machine(-1, steps.lesser, itself))


def count(label: int) -> Rule:
    """You know how many slots have a certain label.

    Args:
        label: the label to count.

    Examples:
        >>> count(1).candidates([2], slots=3, classes=2).labels.tolist()
        [[0, 1, 1], [1, 0, 1], [1, 1, 0]]
    """
    machine = Machine(0, partial(steps.counted, label_number(label)), itself)
    return targets.OfLabel("count", partial(run, machine), machine=machine, label=label_number(label))


def at_least_one(label: int) -> Rule:
    """You know whether at least one slot has a certain label (multiple-instance learning); True for positive bags.

    Args:
        label: the label of positive instances.

    Examples:
        >>> bags = at_least_one(1).candidates([True, False], slots=[2, 3], classes=2)
        >>> bags.labels.tolist()
        [[0, 1, -1], [1, 0, -1], [1, 1, -1], [0, 0, 0]]
    """
    machine = Machine(0, partial(steps.found, label_number(label)), steps.is_one)
    return targets.YesNoOfLabel("at-least-one", partial(run, machine), machine=machine, label=label_number(label))


def exactly_one(label: int) -> Rule:
    """You know whether exactly one slot has a certain label; targets are True or False.

    Args:
        label: the label.

    Examples:
        >>> exactly_one(1).candidates([True], slots=3, classes=2).labels.tolist()
        [[0, 0, 1], [0, 1, 0], [1, 0, 0]]
    """
    machine = Machine(0, partial(steps.counted_to_two, label_number(label)), steps.is_one)
    return targets.YesNoOfLabel("exactly-one", partial(run, machine), machine=machine, label=label_number(label))


def none(label: int) -> Rule:
    """You know whether no slot has a certain label; targets are True or False.

    Args:
        label: the label.

    Examples:
        >>> none(1).candidates([True, False], slots=2, classes=2).counts
        [1, 3]
    """
    machine = Machine(0, partial(steps.found, label_number(label)), steps.is_zero)
    return targets.YesNoOfLabel("none", partial(run, machine), machine=machine, label=label_number(label))


def all_different() -> Rule:
    """You know whether all slots have different labels; targets are True or False.

    Examples:
        >>> all_different().candidates([True, False], slots=3, classes=3).counts
        [6, 21]
    """
    machine = Machine(0, steps.add_to_set, steps.is_set)
    return targets.YesNo("all-different", partial(run, machine), machine=machine)


def ordered(*, strict: bool = False) -> Rule:
    """You know whether the labels are sorted in ascending order; targets are True or False.

    Args:
        strict: whether each label must be larger than the one before: for two slots, whether a < b.

    Examples:
        >>> ordered().candidates([True], slots=2, classes=2).labels.tolist()
        [[0, 0], [0, 1], [1, 1]]
        >>> ordered(strict=True).candidates([True, False], slots=2, classes=10).counts
        [45, 55]
    """
    strict = yes_or_no(strict, "strict")
    machine = Machine(-1, partial(steps.ascend, strict), steps.still_ascends)
    return targets.YesNo("strictly-ordered" if strict else "ordered", partial(run, machine), machine=machine)


def proportions() -> Rule:
    """You know how often each label occurs in a sample, but not where (learning from label proportions).

    A target is a count for each label, `[0, 2, 1]`; a share for each, `[0, 0.67, 0.33]`; a mapping from labels to
    counts; or the labels themselves, in any order. A list with as many numbers as there are labels is read as counts,
    but what `value` returns is always read as labels.

    Examples:
        >>> proportions().candidates([[0, 2, 1, 0]], slots=3, classes=4).labels.tolist()
        [[1, 1, 2], [1, 2, 1], [2, 1, 1]]
        >>> proportions().candidates([[2, 1, 1]], slots=3, classes=4).counts  # the labels themselves
        [3]
        >>> proportions().candidates([proportions().value((1, 1, 1))], slots=3, classes=3).counts
        [1]
    """
    return targets.Proportions("proportions", steps.Sorted.of, machine=Machine(steps.Sorted(), steps.insert, itself))


def partial_labels() -> Rule:
    """You know a set of labels for each slot, one of which is right.

    A target is a list with a set of labels for each slot, or with a row of `c` truth values (True and False, not 1 and
    0) for each slot. If samples have a single slot, a target may be the set or the row itself.

    Examples:
        >>> partial_labels().candidates([{1, 3}, {2}], slots=1, classes=10).labels.tolist()
        [[1], [3], [2]]
        >>> partial_labels().candidates([[{0, 1}, {2}]], slots=2, classes=10).labels.tolist()
        [[0, 2], [1, 2]]
    """
    return targets.PartialLabels("partial-labels", tuple, machine=Machine(0, steps.anything, itself))


def addition(digits: int) -> Rule:
    """You know the sum of two numbers, whose digits are the slots.

    Slots are in reading order: the digits of the first number from left to right, then those of the second. A target is
    the sum, or its digits from left to right. A state machine adds column by column and reads the known digits of the
    sum as `observed` labels (see `Lattice.from_rule`). So numbers of a hundred digits need only 3,299 states, whatever
    their sums are.

    Args:
        digits: the number of digits of each number; there are twice as many slots.

    Examples:
        >>> addition(2).candidates([3], slots=4, classes=10).labels.tolist()
        [[0, 0, 0, 3], [0, 1, 0, 2], [0, 2, 0, 1], [0, 3, 0, 0]]
        >>> addition(15).candidates([10**15 + 7, 12], slots=30, classes=10)
        Lattice(2 samples, 30 slots, 10 classes, 494 states)
    """
    length = whole_number(digits, "digits")
    column = Machine((0, 0), steps.add_column, steps.carry)
    return targets.Addition("addition", partial(steps.sum_of_numbers, length), steps.digits, column, 2 * length)


def transcript() -> Rule:
    """You know the labels of a sequence in order, but not where each begins: actions of a clip, letters of a line.

    A target is a list of labels, no label twice in a row. Each label holds for one slot or more; see `Alignments`.

    Examples:
        >>> transcript().candidates([(2, 0)], slots=4, classes=3).labels.tolist()
        [[2, 2, 2, 0], [2, 2, 0, 0], [2, 0, 0, 0]]
    """
    return targets.Transcript("transcript", steps.without_repetitions, machine=PLACES)


def _whole(values: Any, what: str) -> tuple[int, ...]:
    numbers = whole_numbers(values, what)
    if numbers.ndim != 1 or not len(numbers):
        raise InputError(f"expected {what} as a list of whole numbers, got {shown(values)}")
    return tuple(numbers.tolist())


def _weighted_sum(*weights: int) -> Rule:
    return weighted_sum(weights)


def _checksum(*weights: int, modulus: int = 10) -> Rule:
    return checksum(weights, modulus)


_BY_NAME: dict[str, tuple[str, Callable[..., Rule]]] = {
    "sum": ("", total),
    "weighted-sum": (":WEIGHT,…", _weighted_sum),
    "checksum": (":WEIGHT,…[%MODULUS]", _checksum),
    "luhn": ("", luhn),
    "isbn": ("[:10]", isbn),
    "iban": ("", iban),
    "max": ("", largest),
    "min": ("", smallest),
    "count": (":LABEL", count),
    "at-least-one": (":LABEL", at_least_one),
    "exactly-one": (":LABEL", exactly_one),
    "none": (":LABEL", none),
    "all-different": ("", all_different),
    "ordered": ("", ordered),
    "strictly-ordered": ("", partial(ordered, strict=True)),
    "proportions": ("", proportions),
    "partial-labels": ("", partial_labels),
    "addition": (":DIGITS", addition),
    "transcript": ("", transcript),
}
"""For each name: the syntax of its numbers, and the function that makes the rule from these numbers."""
_NEEDS = {
    "": "{rule} takes no numbers",
    ":LABEL": "{rule} needs a label",
    ":WEIGHT,…": "{rule} needs weights, whole numbers with commas between them",
    ":WEIGHT,…[%MODULUS]": "{rule} needs weights, whole numbers with commas between them",
    ":DIGITS": "{rule} needs a number of digits",
    "[:10]": "{rule} takes no number but 10",
}
"""For each syntax: the message for numbers that do not fit it."""
_SYNTAX = re.compile(r"([a-z-]+)(?::(-?\d+(?:,-?\d+)*)(?:%(\d+))?)?")


def named(text: str) -> Rule:
    """The rule with this name; its numbers follow a colon. These are the names that `--rule` takes on the command line.

    | text | rule |
    |---|---|
    | `sum`, `max`, `min` | `total()`, `largest()`, `smallest()` |
    | `weighted-sum:100,10,1` | `weighted_sum([100, 10, 1])` |
    | `checksum:3,1,7,9`, `checksum:1,4%5` | `checksum([3, 1, 7, 9], 10)`, `checksum([1, 4], 5)` |
    | `luhn`, `isbn`, `isbn:10`, `iban` | `luhn()`, `isbn()`, `isbn(10)`, `iban()` |
    | `count:3`, `at-least-one:1`, `exactly-one:1`, `none:1` | `count(3)` and so on |
    | `all-different`, `ordered`, `strictly-ordered` | `all_different()`, `ordered()`, `ordered(strict=True)` |
    | `proportions`, `partial-labels`, `addition:15`, `transcript` | `proportions()` and so on |

    Args:
        text: the name and its numbers.

    Returns:
        The rule.

    Raises:
        InputError: there is no such rule (the message lists all names), or the numbers do not fit it.

    Examples:
        >>> named("checksum:1,4%5").value((2, 3))
        4
        >>> named("count:7").name
        'count'
    """
    found = _SYNTAX.fullmatch(text.strip()) if isinstance(text, str) else None
    if found and found[1] in _BY_NAME:
        numbers = [integer(number) for number in found[2].split(",")] if found[2] else []
        modulus = {"modulus": integer(found[3])} if found[3] else {}
        try:
            return _BY_NAME[found[1]][1](*numbers, **modulus)
        except TypeError:  # more or fewer numbers than the rule has
            pass
    known = text.strip().partition(":")[0] if isinstance(text, str) else ""
    if known in _BY_NAME:
        following = _BY_NAME[known][0]
        needs = _NEEDS[following].format(rule=known)
        raise InputError(f"{needs}{': ' + known + following if following else ''}, got {shown(text)}")
    every = ", ".join(name + following for name, (following, _) in _BY_NAME.items())
    raise InputError(
        f"expected the name of a rule, with its numbers if it has any, got {shown(text)}; rules are {every}"
    )
