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
        control: of a gain, the difference to the same engine with the random control, in words.
    """

    what: str
    paper: str
    ours: str
    verdict: str
    kind: str = "accuracy gain"
    same: tuple[Any, ...] = ()
    encoder: str = ""
    epochs: int = 0
    control: str = ""


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
    "share kept": "shares kept",
    "overhead": "shares of the time (of another solver on another machine)",
    "difference between encoders": "comparisons of encoders",
    "rank of ABLSim": "comparisons with ABLSim",
}
_GAINED = {
    "accuracy gain": "accuracy",
    "retrieval gain": "retrieval (on drawn clips here)",
    "name or relation gain": "names or relations (on generated scenes here)",
}
"""What gains are in."""
_SAID = {
    "reproduces": "reproduce",
    "not run": "are not run",
    "marked": "have only old or stale runs",
    "too few seeds": "have too few seeds",
    "not comparable": "cannot be compared",
    "no room here": "have no room here",
    "another baseline here": "have another baseline here",
    "no common seeds": "have no common seeds",
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
"""The verdict on a gain that would lift the row without pruning above 100 % here, if ours may fill that room."""
FAR, FAR_BASELINE = 20.0, "another baseline here"
"""The verdict on a gain over a row that is more than this many points from the paper's own."""
NO_COMMON_SEEDS = "no common seeds"
PAPERS_ENCODER, PAPERS_EPOCHS = "resnet18", 50
"""The encoder of the paper's rows "frozen", and the epochs of its runs."""
NO_RESULTS = " runs: "
"""Separates the mark of runs that are no results from a verdict."""
_ROUNDING = 1e-9
"""Points that count as none, because means of floating-point numbers are rounded."""
_GAINS = {measure: kind for kind, measures in KINDS.items() if "gain" in kind for measure in measures}


def claims_of(entries: Sequence[CellResult]) -> list[Claim]:
    """All claims of a table of the paper: gains over the same engine without pruning, shares kept, and more."""
    found = {(entry.place.row.name, entry.place.column.name): entry for entry in entries if not entry.place.row.source}
    claims: list[Claim] = []
    for entry in found.values():
        column, row = entry.place.column.name, entry.place.row
        base, control = found.get((row.engine, column)), found.get((f"{row.engine} + random", column))
        if base is not None and base is not entry:
            claims += [
                claim for measure, kind in _GAINS.items() for claim in _gain(entry, base, measure, kind, control)
            ]
        claims += [claim for measure in KINDS["share kept"] for claim in _near(entry, measure)]
        if row.engine == "abl-sim":
            others = [found[engine, column] for engine in ("dolphin", "scallop") if (engine, column) in found]
            claims += [claim for other in others for claim in _gain(entry, other, "accuracy", "rank of ABLSim")]
    return claims + _encoders(list(found.values()))


def _gain(
    entry: CellResult, base: CellResult, measure: Measure, kind: str, control: CellResult | None = None
) -> list[Claim]:
    """The gain of pruning over the same engine without it, paired by seed."""
    paper, without = entry.published.get(measure), base.published.get(measure)
    if paper is None or without is None:
        return []
    published = paper[0] - without[0]
    said = "" if measure == "accuracy" else f" ({NAMES[measure].partition(',')[0].partition(' %')[0]})"
    what = f"{entry.place.row.name} over {base.place.row.name}{said}, {entry.place.column.name}"
    pairs = paired(entry, base, measure)
    ours, verdict = NOTHING, NOT_RUN
    if entry.records and base.records and entry.epochs != base.epochs:
        verdict = INCOMPARABLE
    elif pairs:
        ours = f"{difference(pairs)} ({_seeds(pairs)}){f', {how}' if (how := peculiarity(entry)) else ''}"
        verdict = _verdict_on(published, without[0], pairs, _of_common_seeds(base, entry, measure))
        verdict = _marked(verdict, entry, base)
    elif entry.values(measure) and base.values(measure):
        verdict = NO_COMMON_SEEDS
    return [
        Claim(
            what,
            f"{published:+.1f}",
            ours,
            verdict,
            kind,
            same=(entry.place.row.engine, *paper, *without),
            encoder=_other_encoder(entry),
            epochs=entry.epochs or 0 if (entry.epochs or 0) < PAPERS_EPOCHS else 0,
            control=_over_control(paired(entry, control, measure)) if control is not None else "",
        )
    ]


def _verdict_on(published: float, without: float, gains: Sequence[float], base: Sequence[float]) -> str:
    """Whether a published gain over the paper's baseline `without` reproduces in our `gains` over `base`."""
    if len(gains) < 2:
        return FEW
    low, high = interval(gains)
    room, far = 100 - statistics.mean(base), abs(statistics.mean(base) - without) > FAR
    if published > room and high >= room - _ROUNDING:
        return NO_ROOM
    return FAR_BASELINE if far else verdict_of(published, low, high)


def _of_common_seeds(base: CellResult, entry: CellResult, measure: Measure) -> list[float]:
    """The figures of the base for the seeds that the entry has, too."""
    return [value for seed, value in zip(base.seeds, base.values(measure), strict=True) if seed in entry.seeds]


def _other_encoder(entry: CellResult) -> str:
    """The encoder of a row "frozen", if it is not the paper's."""
    encoder = config_of(entry.records[0]).encoder if entry.records and entry.place.row.variant == "frozen" else ""
    return "" if encoder == PAPERS_ENCODER else encoder


def difference(gains: Sequence[float]) -> str:
    """The mean of paired differences, with its 95 % interval if there are several.

    Examples:
        >>> difference([1.0]), difference([1.0, 1.5, 0.5])
        ('+1.0', '+1.0 [-0.2, +2.2]')
    """
    if len(gains) < 2:
        return f"{gains[0]:+.1f}"
    low, high = interval(gains)
    return f"{statistics.mean(gains):+.1f} [{low:+.1f}, {high:+.1f}]"


def _over_control(gains: Sequence[float]) -> str:
    """The difference to the random control, and what follows if its interval contains zero; empty for a single seed."""
    if len(gains) < 2:
        return ""
    shown = "" if interval(gains)[0] > 0 else ", so neighbours are not shown to be the cause"
    return f"over the control that discards at random {difference(gains)}{shown}"


def _seeds(values: Sequence[float]) -> str:
    return f"{len(values)} seed{'s' if len(values) > 1 else ''}"


def _marked(verdict: str, *entries: CellResult) -> str:
    mark = next((entry.mark for entry in entries if entry.mark), "")
    return f"{mark}{NO_RESULTS}{verdict}" if mark else verdict


def verdict_of(published: float, low: float, high: float) -> str:
    """Whether a published gain reproduces here, given the 95 % interval of ours.

    Examples:
        >>> verdict_of(17.0, 3.0, 12.0), verdict_of(17.0, -4.0, 6.0)
        ('smaller', 'not seen')
        >>> verdict_of(0.2, 0.1, 1.0), verdict_of(0.2, -8.0, 8.0), verdict_of(0.2, 1.0, 8.0)
        ('no difference, there or here', 'undecided', 'a difference only here')
    """
    if abs(published) < 1:
        if low >= -CLOSE and high <= CLOSE:
            return "no difference, there or here"
        return "a difference only here" if low > 0 or high < 0 else "undecided"
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
    verdict = _marked(_nearness(statistics.mean(values) - paper[0]) if len(values) > 1 else FEW, entry)
    return [
        Claim(name, f"{paper[0]:.1f}", f"{statistics.mean(values):.1f} ({_seeds(values)})", verdict, "share kept", same)
    ]


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


def reproduced(claims: Sequence[Claim]) -> str:
    """Sentences that name the gains that reproduce, with the difference to the random control; empty if none does.

    Examples:
        >>> found = Claim("a + exact over a", "+9.0", "+8.0 [+1.0, +15.0] (9 seeds)", "reproduces")
        >>> reproduced([found]).partition("; ")[0]
        'This gain reproduces: a + exact over a: +8.0 [+1.0, +15.0] points (9 seeds)'
    """
    own = [claim for claim in distinct(claims) if claim.kind in _GAINS.values() and claim.verdict == "reproduces"]
    if not own:
        return ""
    named = [
        f"{claim.what}: {claim.ours.replace(' (', ' points (', 1)}; "
        f"{', '.join(filter(None, [f'in the paper {claim.paper}', claim.control]))}"
        for claim in own
    ]
    said = f"{'This gain reproduces' if len(own) == 1 else 'These gains reproduce'}: {'. '.join(named)}."
    return f"{said} One interval in twenty excludes zero by chance."


def in_short(claims: Sequence[Claim]) -> str:
    """How many of the paper's claims have which verdict: first gains, then shares.

    Examples:
        >>> gains = [Claim("a over b", "+9.0", "+8.0", "reproduces"), Claim("c over b", "+9.0", "–", "not run")]
        >>> in_short(gains)
        "Of the paper's 2 gains in accuracy of more than a point, 1 reproduces, 1 is not run."
        >>> in_short([Claim("kept: a", "79", "80", "within 3 points", "share kept")])
        "Of the paper's 1 shares kept, 1 is within 3 points."
    """
    return " ".join(verdict_counts(claims))


def verdict_counts(claims: Sequence[Claim]) -> list[str]:
    """As `in_short`, with a text for each sort of claims."""
    texts: list[str] = []
    for kind in KINDS:
        own = [claim for claim in distinct(claims) if claim.kind == kind]
        if kind not in _GAINS.values():
            texts += _counted(own, _PLURAL[kind], first=not texts)
            continue
        gains = [claim for claim in own if float(claim.paper) > 1]
        counted = _counted(gains, f"gains in {_GAINED[kind]} of more than a point", first=not texts, gains=True)
        texts += [" ".join([*counted, *_conditions(gains)])] if gains else []
        texts += _counted([claim for claim in own if float(claim.paper) < -1], f"decreases in {_GAINED[kind]}")
        small = [claim for claim in own if abs(float(claim.paper)) <= 1]
        texts += _counted(small, f"differences in {_GAINED[kind]} of at most a point")
    return texts


def _counted(claims: Sequence[Claim], what: str, first: bool = False, gains: bool = False) -> list[str]:
    """A sentence that counts the verdicts on some claims; none if there are no claims."""
    if not claims:
        return []
    counts = Counter(MARKED if NO_RESULTS in claim.verdict else claim.verdict for claim in claims)
    last = {MARKED: 1, NOT_RUN: 2}
    ordered = sorted(counts.items(), key=lambda pair: (last.get(pair[0], 0), -pair[1]))
    said = ", ".join(f"{count} {_said(verdict, count)}" for verdict, count in ordered)
    if gains and "reproduces" not in counts:
        said = f"none reproduces so far: {said}"
    whose = "the paper's" if first else "its"
    return [f"Of {whose} {len(claims)} {what}, {said}."]


def _conditions(claims: Sequence[Claim]) -> list[str]:
    """Sentences on how the runs behind some claims differ from the paper's: fewer epochs, another encoder."""
    run, sentences = [claim for claim in claims if claim.verdict != NOT_RUN], []
    if shorter := sorted({claim.epochs for claim in run if claim.epochs}):
        epochs, many = " or ".join(map(str, shorter)), sum(claim.epochs > 0 for claim in run)
        sentences.append(f"Of the {len(run)} that were run, {many} ran for {epochs} epochs only.")
    if replaced := Counter(claim.encoder for claim in run if claim.encoder and claim.verdict != INCOMPARABLE):
        for encoder, count in replaced.items():
            sentences.append(
                f"In {count} of them, neighbours are found with {encoder}; the paper uses {PAPERS_ENCODER}."
            )
    return sentences


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


_ALIKE = {
    "engine": "loss", "network": "network", "epochs": "epochs", "batch": "batch size", "lr": "learning rate",
    "augment": "augmentation", "encoder": "encoder", "k": "number of neighbours", "radius": "threshold of neighbours",
    "scope": "place of neighbours (batch or pool)",
}  # fmt: skip
"""Settings that two rows should have in common if only their objectives are to be compared, in words."""
_OF_NEIGHBOURS = ("encoder", "k", "radius", "scope")


def verdict(entries: Sequence[CellResult]) -> list[str]:
    """Sentences, task by task, that say whether one objective beats another, for all pairs that were run.

    Of the rows with two objectives, those are compared that have most other settings in common. Where settings differ,
    the sentence names them.
    """
    run = [entry for entry in entries if entry.records]
    columns = dict.fromkeys(entry.place.column.name for entry in run)
    sentences = []
    for column in columns:
        for objective, other in _COMPARISONS:
            ours, theirs = (
                [e for e in run if e.place.column.name == column and e.place.config.objective == each]
                for each in (objective, other)
            )
            both = [(a, b) for a in ours for b in theirs if len(paired(a, b)) > 1]
            if both:
                a, b = min(both, key=lambda pair: len(_differences(*pair)))
                said = sentence(_spoken(a, ours), _spoken(b, theirs), paired(a, b))
                if others := _differences(a, b):
                    said += f" They also differ in {' and '.join(filter(None, [', '.join(others[:-1]), others[-1]]))}."
                sentences.append(said if len(columns) == 1 else f"{column}: {said}")
    return sentences


def _spoken(entry: CellResult, rows: Sequence[CellResult]) -> str:
    """A row by its objective; by its own name if several rows have this objective."""
    objective = entry.place.config.objective
    return _SPOKEN.get(objective, objective) if len(rows) == 1 else f'"{entry.place.row.name}"'


def _differences(first: CellResult, second: CellResult) -> list[str]:
    """The settings in which two rows differ besides the objective; not those of neighbours if one row has none."""
    a, b = (each.records[0].settings or config_of(each.records[0]).as_dict() for each in (first, second))
    without = {"none", "gold"} & {each.place.config.objective for each in (first, second)}
    names = [name for name in _ALIKE if not without or name not in _OF_NEIGHBOURS]
    return [_ALIKE[name] for name in names if a.get(name) != b.get(name)]


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
