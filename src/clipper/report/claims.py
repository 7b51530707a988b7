"""Sentences about results: which of the paper's claims reproduce, and which row beats which by how much."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from clipper.benchmarks.config import config_of
from clipper.benchmarks.statistics import interval
from clipper.benchmarks.tables import CellResult, peculiarity
from clipper.benchmarks.tables.layout import Measure
from clipper.benchmarks.tables.summary import NAMES

CLOSE = 3.0
"""Points. A kept share this close to the paper's reproduces it; a difference in accuracy this small counts as none."""
NOTHING = "–"
"""Shown in place of a missing figure."""


class Claim(NamedTuple):
    """A claim of the paper, and the result here.

    Attributes:
        what: the claim.
        paper: the paper's number.
        ours: the number here, with its interval and seeds.
        verdict: whether it reproduces; `NOT_RUN`, or a mark and `NO_RESULTS`, if there is no result yet.
        kind: what sort of claim it is, one of `KINDS`.
        same: equal for two claims if they are one claim that the paper prints in two tables.
        encoder: the encoder here, if it takes the place of another one of the paper.
        epochs: the epochs here, if they are fewer than the paper's; else 0.
    """

    what: str
    paper: str
    ours: str
    verdict: str
    kind: str = "accuracy gain"
    same: tuple[Any, ...] = ()
    encoder: str = ""
    epochs: int = 0


CLAIM_COLUMNS = ["claim", "paper", "here", "verdict"]
KINDS = {
    "accuracy gain": ("accuracy",),
    "retrieval gain": ("vtr3", "tvr3"),
    "name or relation gain": ("name", "rel"),
    "share kept": ("retained", "gold"),
    "overhead": ("pruning_share",),
    "difference between encoders": ("accuracy",),
    "rank of ABLSim": ("accuracy",),
}
"""The sorts of claims, and the measures that they are about."""
_PLURAL = {
    "accuracy gain": "accuracy gains",
    "retrieval gain": "gains in retrieval (on drawn clips here)",
    "name or relation gain": "gains in names or relations (on generated scenes here)",
    "share kept": "shares kept",
    "overhead": "shares of the time (of another solver on another machine)",
    "difference between encoders": "comparisons of encoders",
    "rank of ABLSim": "comparisons with ABLSim",
}
_SAID = {
    "reproduces": "reproduce",
    "not run": "are not run",
    "marked": "have only old or stale runs",
    "too few seeds": "have too few seeds",
    "not comparable": "cannot be compared",
    "no room here": "have no room here",
    "no difference, there or here": "make no difference, there or here",
    "a difference only here": "make a difference only here",
    **{
        verdict: f"are {verdict}"
        for verdict in ("undecided", "not seen", "the opposite", "within 3 points", "more here", "less here")
    },
    **{verdict: f"are {verdict} here" for verdict in ("smaller", "larger")},
}
"""The words for a verdict on several claims."""
NOT_RUN, FEW, MARKED, INCOMPARABLE = "not run", "too few seeds", "marked", "not comparable"
NO_ROOM = "no room here"
"""The verdict on a gain that would lift the row without pruning above 100 % here."""
PAPERS_ENCODER = "resnet18"
"""The encoder of the paper's rows "frozen"."""
NO_RESULTS = " runs: "
"""Separates the mark of runs that are no results from a verdict."""
_GAINS = {measure: kind for kind, measures in KINDS.items() if "gain" in kind for measure in measures}


def claims_of(entries: Sequence[CellResult]) -> list[Claim]:
    """All claims of a table of the paper: gains over the same engine without pruning, shares kept, and more."""
    found = {(entry.place.row.name, entry.place.column.name): entry for entry in entries if not entry.place.row.source}
    claims: list[Claim] = []
    for entry in found.values():
        column, row = entry.place.column.name, entry.place.row
        base = found.get((row.engine, column))
        if base is not None and base is not entry:
            claims += [claim for measure, kind in _GAINS.items() for claim in _gain(entry, base, measure, kind)]
        claims += [claim for measure in KINDS["share kept"] for claim in _near(entry, measure)]
        if row.engine == "abl-sim":
            others = [found[engine, column] for engine in ("dolphin", "scallop") if (engine, column) in found]
            claims += [claim for other in others for claim in _gain(entry, other, "accuracy", "rank of ABLSim")]
    return claims + _encoders(list(found.values()))


def _gain(entry: CellResult, base: CellResult, measure: Measure, kind: str) -> list[Claim]:
    """The gain of pruning over the same engine without it, paired by seed."""
    paper, without = entry.published.get(measure), base.published.get(measure)
    if paper is None or without is None:
        return []
    published = paper[0] - without[0]
    said = "" if measure == "accuracy" else f" ({NAMES[measure].partition(',')[0].partition(' %')[0]})"
    what = f"{entry.place.row.name} over {base.place.row.name}{said}, {entry.place.column.name}"
    pairs = paired(entry, base, measure)
    ours, verdict = NOTHING, NOT_RUN
    if pairs and entry.epochs != base.epochs:
        ours, verdict = NOTHING, INCOMPARABLE
    elif pairs:
        low, high = interval(pairs)
        several = f" [{low:+.1f}, {high:+.1f}] ({len(pairs)} seeds)" if len(pairs) > 1 else " (1 seed)"
        ours = f"{statistics.mean(pairs):+.1f}{several}{f', {how}' if (how := peculiarity(entry)) else ''}"
        verdict = verdict_of(published, low, high) if len(pairs) > 1 else FEW
        if verdict != FEW and statistics.mean(base.values(measure)) + published > 100:
            verdict = NO_ROOM
        verdict = _marked(verdict, entry, base)
    same = entry.place.row.engine, *paper, *without
    encoder = config_of(entry.records[0]).encoder if entry.records and entry.place.row.variant == "frozen" else ""
    encoder = "" if encoder == PAPERS_ENCODER else encoder
    epochs = entry.epochs or 0
    shorter = epochs if epochs < entry.place.config.epochs else 0
    return [Claim(what, f"{published:+.1f}", ours, verdict, kind, same, encoder, shorter)]


def _marked(verdict: str, *entries: CellResult) -> str:
    mark = next((entry.mark for entry in entries if entry.mark), "")
    return f"{mark}{NO_RESULTS}{verdict}" if mark else verdict


def verdict_of(published: float, low: float, high: float) -> str:
    """Whether a published gain reproduces here, given the 95 % interval of ours.

    Examples:
        >>> verdict_of(17.0, 3.0, 12.0), verdict_of(17.0, -4.0, 6.0)
        ('smaller', 'not seen')
        >>> verdict_of(0.2, -1.0, 1.0), verdict_of(0.2, -8.0, 8.0)
        ('no difference, there or here', 'undecided')
    """
    if abs(published) < 1:
        if low > 0 or high < 0:
            return "a difference only here"
        return "no difference, there or here" if low >= -CLOSE and high <= CLOSE else "undecided"
    if low <= published <= high:
        return "reproduces" if low > 0 or high < 0 else "undecided"
    if low * published > 0 and high * published > 0:
        return "smaller" if abs(published) > max(abs(low), abs(high)) else "larger"
    return "not seen" if low <= 0 <= high else "the opposite"


def paired(entry: CellResult, base: CellResult, measure: Measure = "accuracy") -> list[float]:
    """The differences in a measure, paired by seed."""
    if any(len(each.values(measure)) != len(each.records) for each in (entry, base)):
        return []  # some were not measured
    ours, theirs = (dict(zip(each.seeds, each.values(measure), strict=True)) for each in (entry, base))
    return [ours[seed] - theirs[seed] for seed in ours if seed in theirs]


def _near(entry: CellResult, measure: Measure) -> list[Claim]:
    """The claim about the share of candidates or gold labels that is kept."""
    paper, values = entry.published.get(measure), entry.values(measure)
    if paper is None:
        return []
    what = {"retained": "candidates kept", "gold": "gold kept"}[measure]
    name = f"{what}: {entry.place.row.name}, {entry.place.column.name}"
    same = measure, entry.place.row.engine, *paper
    if not values:
        return [Claim(name, f"{paper[0]:.1f}", NOTHING, NOT_RUN, "share kept", same)]
    verdict = _marked(_nearness(statistics.mean(values) - paper[0]), entry)
    return [Claim(name, f"{paper[0]:.1f}", _mean(values), verdict, "share kept", same)]


def _mean(values: Sequence[float]) -> str:
    return f"{statistics.mean(values):.1f} ({len(values)} seed{'s' if len(values) > 1 else ''})"


def _nearness(difference: float) -> str:
    """Whether a share is within `CLOSE` points of the paper's, larger, or smaller."""
    if abs(difference) <= CLOSE:
        return f"within {CLOSE:g} points"
    return f"{'more' if difference > 0 else 'less'} here"


def _encoders(entries: Sequence[CellResult]) -> list[Claim]:
    """How much the accuracy depends on the encoder, where the paper compares several."""
    groups: dict[tuple[str, str], list[CellResult]] = {}
    for entry in entries:
        if entry.place.row.changes.get("objective") == "paper":
            groups.setdefault((entry.place.row.engine, entry.place.column.name), []).append(entry)
    claims = []
    for (engine, column), own in groups.items():
        theirs = [entry for entry in own if {"accuracy", "retained"} <= set(entry.published)]
        run = [entry for entry in own if entry.records]
        if len(theirs) < 3:
            continue
        papers = [entry.published["accuracy"][0] for entry in theirs]
        widest = max(papers) - min(papers)
        ours, said = NOTHING, NOT_RUN
        if len(run) > 1:
            means = [statistics.mean(entry.values("accuracy")) for entry in run]
            ours = f"{max(means) - min(means):.1f} ({', '.join(entry.place.row.variant for entry in run)})"
            same = all(entry.records for entry in theirs)
            said = _marked(_nearness(max(means) - min(means) - widest) if same else INCOMPARABLE, *run)
        what = f"largest difference between encoders: {engine}, {column}"
        claims.append(Claim(what, f"{widest:.1f}", ours, said, "difference between encoders"))
    return claims


def distinct(claims: Sequence[Claim]) -> list[Claim]:
    """Every claim once, even if the paper prints it in two tables."""
    first: dict[Any, Claim] = {}
    for claim in claims:
        first.setdefault((claim.kind, *(claim.same or claim)), claim)
    return list(first.values())


def _said(verdict: str, count: int) -> str:
    """A verdict on a number of claims, as the end of a sentence."""
    said = _SAID.get(verdict, verdict)
    verb, _, rest = said.partition(" ")
    one = {"are": "is", "have": "has", "make": "makes", "reproduce": "reproduces"}
    return f"{one[verb]} {rest}".strip() if count == 1 and verb in one else said


def in_short(claims: Sequence[Claim]) -> str:
    """How many of the paper's claims have which verdict: first gains, then shares.

    Examples:
        >>> gains = [Claim("a over b", "+9.0", "+8.0", "reproduces"), Claim("c over b", "+9.0", "–", "not run")]
        >>> print(in_short([*gains, Claim("kept: a", "79", "80", "within 3 points", "share kept")]))
        Of the paper's 2 accuracy gains, 1 reproduces, 1 is not run. Of its 1 shares kept, 1 is within 3 points.
    """
    sentences: list[str] = []
    for kind in KINDS:
        own = [claim for claim in distinct(claims) if claim.kind == kind]
        losses = 0
        if kind in _GAINS.values():  # only gains of more than a point
            losses = sum(float(claim.paper) < -1 for claim in own)
            own = [claim for claim in own if float(claim.paper) > 1]
        if own:
            counts = Counter(MARKED if NO_RESULTS in claim.verdict else claim.verdict for claim in own)
            last = {MARKED: 1, NOT_RUN: 2}
            ordered = sorted(counts.items(), key=lambda pair: (last.get(pair[0], 0), -pair[1]))
            said = ", ".join(f"{count} {_said(verdict, count)}" for verdict, count in ordered)
            if kind in _GAINS.values() and "reproduces" not in counts:
                said = f"none reproduces so far: {said}"
            whose = "the paper's" if not sentences else "its"
            also = f" of more than a point (and {losses} decreases)" if losses else ""
            sentences.append(f"Of {whose} {len(own)} {_PLURAL[kind]}{also}, {said}.")
            run = [claim for claim in own if claim.verdict != NOT_RUN]
            if shorter := sorted({claim.epochs for claim in run if claim.epochs}):
                epochs, many = " or ".join(map(str, shorter)), sum(claim.epochs > 0 for claim in run)
                sentences.append(f"Of the {len(run)} that were run, {many} ran for {epochs} epochs only.")
            if replaced := Counter(claim.encoder for claim in run if claim.encoder and claim.verdict != INCOMPARABLE):
                others = " and ".join(f"{encoder} ({count} times)" for encoder, count in replaced.items())
                sentences.append(
                    f"In those that were run, {others} takes the place of the paper's encoder {PAPERS_ENCODER}."
                )
    return " ".join(sentences)


_SPOKEN = {"none": "the baseline", "random": "the random control", "gold": "training on gold labels", "em": "EM"}
_COMPARISONS = (
    ("exact", "none"),
    ("paper", "none"),
    ("exact", "random"),
    ("exact", "paper"),
    ("joint", "exact"),
    ("joint", "em"),
    ("gold", "joint"),
)
"""Pairs of objectives that are compared in sentences."""


def verdict(entries: Sequence[CellResult]) -> list[str]:
    """Sentences, task by task, that say whether one objective beats another, for all pairs that were run."""
    found: dict[tuple[str, str], CellResult] = {}
    for entry in entries:
        if entry.records:
            found.setdefault((entry.place.column.name, entry.place.config.objective), entry)
    columns = dict.fromkeys(column for column, _ in found)
    sentences = []
    for column in columns:
        for objective, other in _COMPARISONS:
            ours, theirs = found.get((column, objective)), found.get((column, other))
            if ours and theirs and len(gains := paired(ours, theirs)) > 1:
                said = sentence(_SPOKEN.get(objective, objective), _SPOKEN.get(other, other), gains)
                sentences.append(said if len(columns) == 1 else f"{column}: {said}")
    return sentences


def sentence(first: str, second: str, gains: Sequence[float]) -> str:
    """Whether the first beats the second, judged by the 95 % interval of the paired differences.

    Examples:
        >>> sentence("exact", "paper", [0.5, -0.5, 0.1])
        'Exact and paper do not differ as far as 3 seeds can tell: +0.0 points, 95 % interval -1.2 to +1.3.'
        >>> sentence("exact", "paper", [-2.0, -3.0, -4.0])
        'Paper beats exact by 3.0 points, 95 % interval 0.5 to 5.5; it is ahead in 3 of 3 seeds.'
    """
    low, high = interval(gains)
    if low <= 0 <= high:
        numbers = f"{statistics.mean(gains):+z.1f} points, 95 % interval {low:+z.1f} to {high:+z.1f}"
        return f"{_capital(first)} and {second} do not differ as far as {len(gains)} seeds can tell: {numbers}."
    if high < 0:
        return sentence(second, first, [-gain for gain in gains])
    won = f"it is ahead in {sum(gain > 0 for gain in gains)} of {len(gains)} seeds"
    numbers = f"{statistics.mean(gains):.1f} points, 95 % interval {low:.1f} to {high:.1f}"
    return f"{_capital(first)} beats {second} by {numbers}; {won}."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
