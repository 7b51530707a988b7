"""Tables of results as text, our figures beside the paper's: for the terminal and for Markdown pages."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence

from clipper.benchmarks.statistics import interval, spread
from clipper.benchmarks.tables import CellResult, Table, counts, peculiarity
from clipper.benchmarks.tables.layout import FRESH, MEANING, Column, Measure
from clipper.benchmarks.tables.summary import MARKS, NAMES, bounded
from clipper.report.claims import (
    CLAIM_COLUMNS,
    CLOSE,
    FAR,
    NOT_RUN,
    NOTHING,
    Claim,
    claims_of,
    distinct,
    reproduced,
    verdict_counts,
)

_HEAD = """`clipper results` writes these figures from the {runs:,} runs in `results/records.jsonl`. `clipper table`
adds runs.

**In short.** {found}

The verdicts on all claims:

{verdicts}

How to read the tables:

- Accuracy is measured on held-out data after the last epoch, never the best epoch, and averaged over seeds.
  Deviations, 95 % intervals and every seed are below each table. For a seed, all rows use the same samples, and those
  with the same network the same initial weights.
- Results have seeds from {fresh} on. Settings were chosen on seeds 0 to 19. Where other settings of a row were tried on
  other seeds, its page says so.
- *{old}*: {old_means}. Such figures do not count as results.
- *{stale}*: {stale_means}.
- *not run (2 h)*: the number is an estimate in core-hours, from similar runs.
- *Gold labels* is the ceiling of the rows that have the same optimiser, epochs and seeds. In the claims, differences
  are paired by seed.
- The paper's figures are means of three runs; those of MUGEN and VQAR are one run each. A gain *reproduces* if our 95 %
  interval contains the paper's gain but not zero. It is *undecided* if the interval contains both, and *not seen* if it
  contains zero but not the paper's gain. It is *smaller* or *larger* if the interval contains neither, but has the same
  sign, and *the opposite* if it has the other sign. Where the paper has no gain (less than a point), there is *no
  difference, there or here* if the interval lies within {close} points of zero, *a difference only here* if it reaches
  further and does not contain zero, and else it is *undecided*. One run is *too few seeds* for a verdict.
- A gain is not judged if the row without pruning is too different. There is *no room here* if this row is so good here
  that the paper's gain would lift it above 100 %, and our interval reaches the room that is left. There is *another
  baseline here* if it is more than {far} points from the paper's.
- This rule takes the paper's gain as exact. But its three runs differ from one another: on the tasks with 100 samples,
  standard deviations are between 0.2 and 22 points, 14 to 22 for Dolphin and Scallop on SUM-3. There the paper's own
  95 % intervals are wider than ours. *Not seen* means that our runs do not show the gain; it does not mean that the
  paper's runs did not.
- Below each table stands the number of seeds of most of its cells. The others say how many they have.
- A share that is kept is *within {close} points* of the paper's, or there is *more* or *less here*.
- *Accuracy* is that of single inputs: of images; on clips, of frames; on scenes, of names and relations together.
  *Candidates kept* is the share that pruning keeps, averaged over the epochs: of all listed candidates, or, where
  candidates are not listed (clips), the mean share of a sample. *Gold kept* is the share of samples that keep their
  gold combination.

What is done to the candidates in each row:

{meaning}
"""


def ours(entry: CellResult, measure: Measure) -> list[str]:
    """Lines of text: mean ± deviation, the 95 % interval of the mean, the number of seeds. Empty if nothing was run."""
    values = entry.values(measure)
    if len(values) < 2:
        return [line for value in values for line in (f"{value:.1f}", _noted("(1 seed)", entry.mark))]
    low, high = bounded(measure, *interval(values))
    return [spread(values), _noted(f"[{low:.1f}, {high:.1f}] ({len(values)})", entry.mark)]


def _noted(text: str, *notes: str) -> str:
    return ", ".join(note for note in (text, *notes) if note)


def figure(entry: CellResult, measure: Measure, *, usual: int = 0, briefly: bool = False) -> str:
    """One cell: the mean with its mark and remarks; or, if nothing was run, the estimated cost of the runs.

    Args:
        entry: the cell.
        measure: what is shown.
        usual: the number of seeds that need not be said; one seed is always said.
        briefly: whether to leave out remarks and costs.
    """
    values = entry.values(measure)
    if values:
        mean = f"{statistics.mean(values):.1f}"
        many = len(values)
        seeds = "1 seed" if many == 1 else f"{many} seeds" if usual and many != usual else ""
        marked = f"{mean} *{entry.mark}*" if entry.mark else mean
        return marked if briefly else _noted(marked, seeds, peculiarity(entry))
    if entry.records or entry.place.row.source or briefly:
        return NOTHING
    return f"not run{cost(entry.hours)}"


def usual_seeds(entries: Sequence[CellResult]) -> int:
    """The number of seeds that most of the cells have; 0 if nothing was run."""
    many = Counter(len(entry.records) for entry in entries if entry.records)
    return max(many, key=lambda seeds: (many[seeds], seeds), default=0)


def cost(hours: float | None) -> str:
    """Core-hours in brackets; empty if unknown.

    Examples:
        >>> cost(0.42), cost(37.2), cost(0.004), cost(None)
        (' (0.4 h)', ' (37 h)', ' (< 0.1 h)', '')
    """
    if hours is None:
        return ""
    return " (< 0.1 h)" if hours < 0.05 else f" ({hours:.1f} h)" if hours < 10 else f" ({hours:,.0f} h)"


def papers(entry: CellResult, measure: Measure) -> str:
    """The paper's mean ± deviation; only the mean if no deviation is known."""
    figure = entry.published.get(measure)
    if figure is None:
        return NOTHING
    return f"{figure[0]:.1f} ± {figure[1]:.1f}" if figure[1] else f"{figure[0]:.1f}"


def columns_of(table: Table) -> list[str]:
    """The heads of the columns: of each task, or each measure where there are several, ours and the paper's."""
    return ["row", *(text for head, shown in _heads(table) for text in (head, f"{head} (paper)")[:shown])]


def rows_of(table: Table, entries: Sequence[CellResult]) -> list[list[str]]:
    """The cells of the table, row by row, without empty rows; with several measures, a row for each cell."""
    cells: dict[str, list[tuple[str, str]]]
    if len(table.measures) > 1:
        cells = {
            f"{entry.place.column.name}: {entry.place.row.name}": [_pair(entry, measure) for measure in table.measures]
            for entry in entries
        }
    else:
        (measure,) = table.measures
        found = {(entry.place.row.name, entry.place.column.name): entry for entry in entries}
        cells = {
            row.name: [_pair(found.get((row.name, column.name)), measure) for column in table.columns]
            for row in table.rows
        }
    shown = [number for _, number in _heads(table)]
    rows = [
        [name, *(text for pair, number in zip(pairs, shown, strict=True) for text in pair[:number])]
        for name, pairs in cells.items()
    ]
    return [row for row in rows if any(text != NOTHING for text in row[1:])]


def _heads(table: Table) -> list[tuple[str, int]]:
    """Each task, or each measure where there are several, and how many columns it has: two if the paper has figures."""
    if len(table.measures) > 1:
        return [(NAMES[m], 1 + any(m in figures for figures in table.published.values())) for m in table.measures]
    return [(c.name, 1 + any(c.name == column for _, column in table.published)) for c in table.columns]


def _pair(entry: CellResult | None, measure: Measure) -> tuple[str, str]:
    """Our cell and the paper's."""
    return (NOTHING, NOTHING) if entry is None else (" ".join(ours(entry, measure)) or NOTHING, papers(entry, measure))


def by_task(table: Table, entries: Sequence[CellResult]) -> list[tuple[str, list[str], list[list[str]]]]:
    """For narrow screens: name, heads and rows of each task; the paper's figure below ours."""
    heads = ["row", *(NAMES[measure] for measure in table.measures)]
    tasks = []
    for column in table.columns:
        found = [entry for entry in entries if entry.place.column == column and (entry.records or entry.published)]
        rows = [[entry.place.row.name, *(_stacked(entry, measure) for measure in table.measures)] for entry in found]
        if any(entry.records for entry in found):
            tasks.append((column.name, heads, rows))
    return tasks


def _stacked(entry: CellResult, measure: Measure) -> str:
    lines, paper = ours(entry, measure) or [NOTHING], papers(entry, measure)
    return "\n".join(lines if paper == NOTHING else [*lines, f"paper {paper}"])


def markdown(table: Table, entries: Sequence[CellResult]) -> str:
    """The table in Markdown."""
    return markdown_table(columns_of(table), rows_of(table, entries))


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Any table in Markdown; the first column is text.

    Examples:
        >>> markdown_table(["a", "b"], [["x", "1"]])
        '| a | b |\\n| --- | ---: |\\n| x | 1 |\\n'
    """
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return "".join("| " + " | ".join(cells) + " |\n" for cells in (head, rule, *rows))


Gathered = Sequence[tuple[Table, Sequence[CellResult]]]
"""Tables, each with the results in its cells."""


def results_text(runs: int, gathered: Gathered, claims: Sequence[Claim]) -> str:
    """All tables one below the other, in Markdown, after a summary of the claims."""
    parts = [head(runs, claims), *(f"## {table.title}\n\n{section(table, own, 3)}" for table, own in gathered)]
    return "\n".join(parts).rstrip() + "\n"


def overview(runs: int, gathered: Gathered, claims: Sequence[Claim]) -> str:
    """The overview page: a summary of the claims, and links to the page of each table."""
    rows = []
    for table, entries in gathered:
        own = [entry for entry in entries if not entry.place.row.source]
        done = [entry for entry in own if entry.records]
        results = sum(map(counts, done))
        numbers = [len(own), results, len(done) - results, len(own) - len(done)]
        missing = cost(total(own)).strip(" ()") or NOTHING
        rows.append([f"[{table.title}](results/{table.name}.md)", *map(str, numbers), missing])
    heads = [
        "table",
        "cells",
        "with results (also of fewer seeds)",
        "with shorter, old or stale runs",
        "not run",
        "to run, core-hours",
    ]
    return f"{head(runs, claims)}\n{markdown_table(heads, rows)}"


def head(runs: int, claims: Sequence[Claim]) -> str:
    """A summary of the results, and how to read the tables."""
    meaning = "\n".join(f"- **{variant}**: {text}" for variant, text in MEANING.items())
    (old, old_means), (stale, stale_means) = MARKS.items()
    verdicts = "\n".join(f"- {text}" for text in verdict_counts(claims))
    return _HEAD.format(
        runs=runs, fresh=FRESH, meaning=meaning, found=found(claims), verdicts=verdicts, old=old, old_means=old_means,
        stale=stale, stale_means=stale_means, close=f"{CLOSE:g}", far=f"{FAR:g}",
    )  # fmt: skip


def found(claims: Sequence[Claim]) -> str:
    """The findings in plain words: how much was run, and which accuracy gains reproduce and which were not seen."""
    own = distinct(claims)
    missing = sum(claim.verdict == NOT_RUN for claim in own)
    parts = [f"Of the paper's {len(own)} claims that these tables hold, {len(own) - missing} have a figure here."]
    parts += [reproduced(own)] if reproduced(own) else ["No gain of the paper reproduces so far."]
    gains = [claim for claim in own if claim.kind == "accuracy gain" and float(claim.paper) > 1]
    unseen = [claim.what for claim in gains if claim.verdict == "not seen"]
    if unseen:
        parts.append(f"Accuracy gains that were not seen here: {'; '.join(unseen)}.")
    return " ".join(parts)


def total(entries: Sequence[CellResult]) -> float | None:
    """Core-hours of all missing runs; None if unknown."""
    known = [entry.hours for entry in entries if entry.hours is not None]
    return sum(known) if known else None


def drawn_rows(entries: Sequence[CellResult], column: Column) -> list[CellResult]:
    """The rows of a task that a figure shows: those with results, if there are at least three."""
    shown = [entry for entry in entries if entry.place.column == column and counts(entry) and entry.values("accuracy")]
    return shown if len(shown) > 2 else []


def picture_of(table: Table, column: Column) -> str:
    """The path of a task's figure in the folder of images."""
    return f"results/{table.name}-{table.columns.index(column) + 1}.svg"


def section(table: Table, entries: Sequence[CellResult], level: int = 2, images: str = "") -> str:
    """One table: for each task what was run, here or by others; what is missing; and the claims.

    Args:
        table: the table.
        entries: the results in its cells.
        level: of the headings.
        images: the address of the folder with figures; without one, none is shown.
    """
    parts = ["".join(f"- **{variant}** here: {text}\n" for variant, text in table.notes.items()), f"{table.remark}\n"]
    missing = []
    for column in table.columns:
        own = [entry for entry in entries if entry.place.column == column]
        if any(entry.records or entry.published for entry in own):
            parts.append(f"{'#' * level} {column.name}\n\n{task(table, own)}")
            if images and drawn_rows(own, column):
                parts.append(f"![Accuracy of each row and seed]({images}{picture_of(table, column)})\n")
        else:
            missing.append(f"{column.name}{cost(total([entry for entry in own if not entry.place.row.source]))}")
    if missing:
        parts.append(f"Not run: {'; '.join(missing)}.\n")
    if total(entries) != 0:
        parts.append(f"`clipper table {table.name}` runs what is missing, on one core{cost(total(entries))}.\n")
    claims = claims_of(entries)
    if claims:
        parts.append(_details(f"The paper's claims in this table ({len(claims)})", _claims(claims)))
    return "\n".join(part for part in parts if part.strip())


def _claims(claims: Sequence[Claim]) -> str:
    return markdown_table(CLAIM_COLUMNS, [[each.what, each.paper, each.ours, each.verdict] for each in claims])


def task(table: Table, entries: Sequence[CellResult]) -> str:
    """One task of a table: a number in each cell; deviations, intervals and seeds fold out."""
    seeds = [
        [_noted(_name(entry), peculiarity(entry)), NAMES[measure], *_spread(entry, measure), _by_seed(entry, measure)]
        for entry in entries
        for measure in table.measures
        if entry.values(measure)
    ]
    if not seeds:
        return numbers(table, entries)
    usual = usual_seeds(entries)
    said = f"Means over {usual} seeds, unless a cell says otherwise." if usual > 1 else ""
    lookup = markdown_table(["row", "measure", "mean ± deviation", "95 % interval", "seeds", "by seed"], seeds)
    said = " ".join(filter(None, [said, above_ceiling(entries)]))
    parts = [numbers(table, entries), f"{said}\n" if said else "", _details("Intervals, and every seed", lookup)]
    return "\n".join(filter(None, parts))


def above_ceiling(entries: Sequence[CellResult]) -> str:
    """Sentences on rows above training on gold labels: by chance, or because the runs on gold labels were others."""
    alike, other = [], []
    for entry in entries:
        ceilings = [each for each in entries if _is_below(each, entry)]
        if any(_trained_alike(entry, each) for each in ceilings):
            alike.append(entry)
        elif ceilings:
            other.append(entry)
    names = list(dict.fromkeys(f"*{entry.place.row.name}*" for entry in other))
    which = f"{', '.join(names)}: no run on gold labels has the same epochs, batches and seeds, so none is a ceiling."
    return " ".join([*(["A row can lie above gold labels by chance."] if alike else []), *([which] if other else [])])


def _is_below(ceiling: CellResult, entry: CellResult) -> bool:
    """Whether a cell was trained on gold labels, and is less accurate than another with the same network and task."""
    first, second = ceiling.place.config, entry.place.config
    if ceiling.place.column != entry.place.column or first.network != second.network:
        return False
    if not (first.objective == "gold" != second.objective and ceiling.values("accuracy") and entry.values("accuracy")):
        return False
    return statistics.mean(ceiling.values("accuracy")) < statistics.mean(entry.values("accuracy"))


def _trained_alike(first: CellResult, second: CellResult) -> bool:
    """Whether the runs of two cells have the same seeds and the same steps."""
    names = ("epochs", "batch", "lr", "optimiser", "schedule", "augment", "weight_decay")
    a, b = (each.records[0].config for each in (first, second))
    return first.seeds == second.seeds and all(a.get(name) == b.get(name) for name in names)


def numbers(table: Table, entries: Sequence[CellResult]) -> str:
    """One task of a table: its rows by its measures, ours and the paper's."""
    shown = [entry for entry in entries if entry.published or not entry.place.row.source]
    paper = [measure for measure in table.measures if any(measure in entry.published for entry in shown)]
    pairs = {m: (NAMES[m], f"{NAMES[m]} (published)") for m in table.measures}
    heads = ["row", *(text for m in table.measures for text in pairs[m][: 1 + (m in paper)])]
    usual = usual_seeds(shown)
    rows = [
        [
            entry.place.row.name,
            *(
                text
                for m in table.measures
                for text in (figure(entry, m, usual=usual, briefly=m != _first(table, entry)), papers(entry, m))[
                    : 1 + (m in paper)
                ]
            ),
        ]
        for entry in shown
    ]
    return markdown_table(heads, rows)


def _first(table: Table, entry: CellResult) -> Measure:
    """The first measure that the runs of a cell have; remarks stand beside it."""
    return next((measure for measure in table.measures if entry.values(measure)), table.measures[0])


def _name(entry: CellResult) -> str:
    """The name of the row, with the mark of runs that do not count as results."""
    return f"{entry.place.row.name} *{entry.mark}*" if entry.mark else entry.place.row.name


def _spread(entry: CellResult, measure: Measure) -> list[str]:
    values = entry.values(measure)
    if len(values) < 2:
        return [f"{values[0]:.1f}", NOTHING]
    low, high = bounded(measure, *interval(values))
    return [spread(values), f"{low:.1f} to {high:.1f}"]


def _by_seed(entry: CellResult, measure: Measure) -> str:
    """Which seeds, and their figures, as cells of a table."""
    first, last = entry.seeds[0], entry.seeds[-1]
    values = ", ".join(f"{value:.1f}" for value in entry.values(measure))
    return f"{first if first == last else f'{first} to {last}'} | {values}"


def _details(summary: str, text: str) -> str:
    return f'<details markdown="1">\n<summary>{summary}</summary>\n\n{text}\n</details>\n'
