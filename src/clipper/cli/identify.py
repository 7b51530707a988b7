"""`clipper identify`: the function `clipper.identify` for a rule or for files."""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from torch import Tensor

from clipper.arguments import number_in_words, shown
from clipper.benchmarks.drawing import MOST_SLOTS
from clipper.benchmarks.hwf import HWF_RULE
from clipper.candidates import Candidates, CandidateSet
from clipper.candidates.task import called
from clipper.cli.console import errors, output, print_json, table
from clipper.cli.options import Json, counted
from clipper.errors import BudgetError, InputError
from clipper.labelling import Identification
from clipper.labelling import identify as identify_labels
from clipper.labelling.identify import BUDGET, shortened
from clipper.labelling.label_files import read_label_tensor
from clipper.labelling.label_job import rule_named
from clipper.rules import Rule

_TRIED = 1_000_000
"""Largest number of labels or combinations to evaluate in order to find the values of a rule."""
_WITH_COMMAS = ("partial-labels", "proportions", "transcript")
"""Rules whose targets may contain commas; their targets are separated by semicolons."""
_GIVEN = ("partial-labels",)
"""Rules whose targets do not follow from labels."""
_SHOWN = 40
"""If there are more labels than this, the table omits those that are identified."""


def identify(
    candidates: Annotated[
        Path | None,
        typer.Argument(help="Parquet, a row per candidate: sample, slot_0, slot_1, …; not with --rule."),
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(help="sum, max, checksum:3,1,7 …; or FILE.py:FUNCTION, a function of a tuple of labels."),
    ] = None,
    classes: Annotated[int | None, counted("Number of different labels; needed with --rule.")] = None,
    slots: Annotated[int | None, counted("Inputs per sample; needed with --rule.", most=MOST_SLOTS)] = None,
    targets: Annotated[
        str | None,
        typer.Option(
            help="Targets that occur, with commas, or semicolons if they contain commas; default: those of --labels, "
            "else all."
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="True labels of the samples (.csv, .parquet); changes what is searched, see above."),
    ] = None,
    one_to_one: Annotated[
        bool, typer.Option("--one-to-one", help="With --labels: only maps that keep different labels different.")
    ] = False,
    budget: Annotated[
        int, counted("Limit of the search, in numbers read; the default takes about a minute.", most=10**18)
    ] = BUDGET,
    json: Json = False,
) -> None:
    """Say which labels a rule or a file of candidates can tell apart. Needs no images and no training.

    Without --labels, it finds all permutations of the labels that map the
    candidates of every sample onto themselves. With --labels, it finds all
    maps, many-to-one maps included, under which these labels still satisfy
    every formula.

    Example: clipper identify --rule sum --classes 10 --slots 3
    """
    given = None if labels is None else read_label_tensor(labels)
    if (candidates is None) == (rule is None):
        raise InputError(
            "expected either a file of candidates, or --rule with --classes and --slots; for a table of samples, give "
            "its targets: --rule sum --classes 10 --slots 3 --targets 4,7,12"
        )
    if candidates is not None:
        if slots is not None or targets is not None:
            raise InputError("expected --slots and --targets only with --rule: a file of candidates has its own")
        known: CandidateSet = Candidates.read(candidates, classes)
    else:
        assert rule is not None
        if classes is None or slots is None:
            raise InputError("expected --classes and --slots with --rule, such as --rule sum --classes 10 --slots 3")
        known = _candidates(HWF_RULE if rule == HWF_RULE.name else rule_named(rule), classes, slots, targets, given)
    with errors.status("searching"):
        found = identify_labels(known, given, one_to_one=one_to_one, budget=budget)
    if json:
        print_json(found.as_dict())
    else:
        _show(found)


def _candidates(rule: Rule, classes: int, slots: int, targets: str | None, labels: Tensor | None) -> CandidateSet:
    """The candidates of the given targets; else of the targets of the labels; else of all values of the rule."""
    rows = None if labels is None else _used(labels, slots)
    if targets is not None:
        separator = ";" if ";" in targets or rule.name in _WITH_COMMAS else ","
        wanted = [_value(rule, text) for text in targets.split(separator)]
    elif rule.name in _GIVEN:
        raise InputError(
            f"expected --targets with the rule {rule.name}, whose targets do not follow from labels, such as "
            '--targets "0,1|2;1|0,2", with semicolons between targets'
        )
    elif rows is not None:
        wanted = [_called(rule, row) for row in rows]
    else:
        wanted = _attainable(rule, rule.domains(slots) if rule.domains else [range(classes)] * slots)
    lengths = slots if rows is None or len(rows) != len(wanted) else [len(row) for row in rows]
    return rule.candidates(wanted, lengths, classes)


def _used(labels: Tensor, slots: int) -> list[tuple[int, ...]]:
    """The labels of the used slots of each sample; the last slots of a sample may be unused."""
    if labels.shape[1] != slots:
        raise InputError(f"expected --labels of {slots} slots like --slots, got {labels.shape[1]}")
    rows = [[label for label in row if label >= 0] for row in labels.tolist()]
    for sample, (used, row) in enumerate(zip(rows, labels.tolist(), strict=True)):
        if not used or row[: len(used)] != used:
            raise InputError(
                f"expected labels in the first slots of each sample, got {shown(row)} for sample {sample}, where -1 is "
                "a missing label; fill it in, or leave the sample out"
            )
    return [tuple(used) for used in rows]


def _attainable(rule: Rule, domains: Sequence[Sequence[int]]) -> list[Hashable]:
    """All values of the rule."""
    if rule.machine is None or type(rule)._lattice is not Rule._lattice:  # a machine that does not give the targets
        _check_tried(math.prod(map(len, domains)))
        return list(dict.fromkeys(_called(rule, row) for row in itertools.product(*domains)))
    states: dict[Hashable, None] = {rule.machine.start: None}
    tried = 0
    for domain in domains:
        tried += len(states) * len(domain)
        _check_tried(tried)
        after = (rule.machine.step(state, label) for state in states for label in domain)
        states = dict.fromkeys(state for state in after if state is not None)
    return [value for value in dict.fromkeys(map(rule.machine.accept, states)) if value is not None]


def _check_tried(tried: int) -> None:
    if tried > _TRIED:
        raise BudgetError(
            f"finding all values of the rule takes {number_in_words(tried)} evaluations, more than {_TRIED:,}; "
            "name the values with --targets, or give labels with --labels"
        )


def _called(rule: Rule, labels: tuple[int, ...]) -> Hashable:
    return called(rule.value, labels, what="the rule", returns="a hashable value")


def _value(rule: Rule, text: str) -> Hashable:
    """A target as the rule reads it; if the rule reads any text, as Python writes it, such as 3 or True."""
    if type(rule).parse is not Rule.parse:
        target: Hashable = rule.parse(text)
        return target
    try:
        value: Hashable = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text.strip()
    return value


def _show(found: Identification) -> None:
    rows = [row for row in found.rows() if len(found.identified) <= _SHOWN or not row["identified"]]
    several = len(found.kinds) > 1
    cells = [
        [str(row["label"]), *[row["kind"]] * several, shortened(row["names"]), found.amount(row["instances"])]
        for row in rows
    ]
    if rows:
        heads = ["label", *["kind"] * several, "may be called", "instances"]
        output.print(table("names that the formulas allow for each label", heads, cells))
    output.print(found.sentence, soft_wrap=True)
