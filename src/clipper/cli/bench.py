"""`clipper bench`: measurements of speed and quality. Methods that are compared run in turn in one process."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer

from clipper.benchmarks import (
    bench_ablation,
    bench_ask,
    bench_ceiling,
    bench_infer,
    bench_loss,
    bench_prune,
    bench_scale,
    bench_train,
    bench_zoo,
)
from clipper.benchmarks.config import EngineName, RunConfig
from clipper.benchmarks.data.images import digits, mnist
from clipper.benchmarks.datasets import missing_data
from clipper.benchmarks.drawing import MOST_SLOTS
from clipper.benchmarks.measurements import add_measurement
from clipper.benchmarks.statistics import percent
from clipper.benchmarks.zoo import lines_like
from clipper.benchmarks.zoo_summary import promises, summarise
from clipper.cli.console import errors, output, print_json, progress_bars, table
from clipper.cli.options import LAST_SEED, DataRoot, ExecutorOption, Json, Workers, counted, writable
from clipper.errors import InputError, require
from clipper.report.zoo_page import PROMISE_COLUMNS, promise_cells, verdicts, write_zoo_page

bench = typer.Typer(
    help="Measure speed and quality: pruning, losses, joint inference, training, large pools.", no_args_is_help=True
)
Rounds = Annotated[int, counted("Rounds per setting; each round runs every method once.")]
Slots = Annotated[int, counted("Images per sample.")]
Kept = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Also add what was measured to this file; pages show results/bench.jsonl."),
]
RuleName = Annotated[str, typer.Option(help="What is known about a sample: the sum or max of its labels.")]
Data = Annotated[str, typer.Option(help="Data set of the images; digits needs no download.")]
METHODS = {"lattice": "lattice", "candidates": "candidates", "circuit, log": "KLay, log", "circuit, real": "KLay, real"}
"""The methods of `bench loss`, with their column heads in the table."""


@bench.command(name="prune")
def prune(
    rounds: Rounds = 15,
    data: Annotated[Literal["digits", "mnist"], typer.Option(help="digits needs no download.")] = "digits",
    json: Json = False,
) -> None:
    """Time closed forms against HiGHS, CP-SAT and a neighbour search, in batches of 64 and up to 100,000 samples."""
    images = mnist() if data == "mnist" else digits()
    with progress_bars() as report:
        document: dict[str, Any] = {
            "data": images.name,
            "batch": bench_prune.BATCH,
            "threads": torch.get_num_threads(),
            "race": bench_prune.race_solvers(images, rounds, report),
            "search": bench_prune.race_search(report),
            "growth": bench_prune.growth(report),
        }
    if json:
        print_json(document)
        return
    slow = {"highs": "HiGHS", "cp-sat": "CP-SAT"}
    solvers = {"search and closed-form": "with search", "closed-form": "closed form", **slow}
    columns = {"task": "{task}", "k": "{k}", "objective": "{objective}"}
    columns |= {head: f"{{milliseconds[{name}]:.2f}}" for name, head in solvers.items()}
    columns |= {f"{head} ×": f"{{times_slower_than_closed_form[{name}]:.0f}}" for name, head in slow.items()}
    _print(f"median milliseconds per batch of 64 ({data}, {document['threads']} threads)", columns, document["race"])
    search = document["search"]
    times, spent = search["times_slower_than_product_and_top_k"], search["milliseconds"]
    output.print(
        f"Clipper(k=1) takes {times:.2f} times as long as the distance product and top-k alone: "
        f"{spent['Clipper(k=1)']:.2f} against {spent['product and top-k']:.2f} ms (SUM-3, pixels of {search['data']})",
        soft_wrap=True,
    )
    columns = {"samples": "{samples:,}", "objective": "{objective}", "µs per sample": "{microseconds_per_sample:.1f}"}
    _print("growth (SUM-3, three edges per sample, without the search)", columns, document["growth"])


@bench.command(name="scale")
def scale(
    instances: Annotated[
        list[int] | None,
        counted("Instances in the pool; repeat for several. Default: 10,000 to a million.", most=10**9),
    ] = None,
    stage: Annotated[
        list[str] | None,
        typer.Option(help="What to measure: prune, or infer (half an hour for a million); repeat for both."),
    ] = None,
    dimensions: Annotated[int, counted("Dimensions of the embeddings.", most=10**5)] = 64,
    k: Annotated[int | None, counted("Neighbours per instance; default: 1 to prune, 8 to infer.", "-k")] = None,
    search: Annotated[str, typer.Option(help="How to find neighbours: auto, or a method by name.")] = "auto",
    engine: ExecutorOption = "single",
    workers: Workers = None,
    ranks: Annotated[int, counted("Processes that infer together, with --stage infer.")] = 1,
    seed: Annotated[int, typer.Option(min=0, max=LAST_SEED, help="Seed of the random draws.")] = 0,
    out: Kept = None,
    json: Json = False,
) -> None:
    """Measure pools of growing size: seconds, memory and recall, of SUM-3, each size in its own process.

    With --engine or --ranks a size runs in several processes. Then bytes that are sent are counted, too.
    """

    def keep(job: bench_scale.ScaleJob, row: dict[str, Any]) -> None:
        if out is not None:
            add_measurement(out, "scale", job.settings, row)

    kept = writable(*([] if out is None else [out]))
    with kept, tempfile.TemporaryDirectory(prefix="clipper-scale-") as folder, progress_bars() as report:
        sizes, stages = instances or [10_000, 100_000, 1_000_000], stage or ["prune"]
        jobs = [
            bench_scale.ScaleJob(
                each,
                size,
                Path(folder) / "pool",
                dimensions,
                k=k,
                search=search,
                seed=seed,
                engine=engine,
                workers=workers,
                ranks=ranks,
            )
            for each in stages
            for size in sizes
        ]
        measured = bench_scale.measure_growth(jobs, report, keep)
    threads = torch.get_num_threads()
    if json:
        print_json({"dimensions": dimensions, "seed": seed, "threads": threads, "rows": measured})
        return
    columns = {
        "stage": "{stage}",
        "k": "{k}",
        "instances": "{instances:,}",
        "seconds": "{seconds:.1f}",
        "of which search": "{search_seconds:.1f}",
        "processor seconds of a rank": "{processor_seconds:.1f}",
        "peak": "–" if measured[0]["peak_gigabytes"] is None else "{peak_gigabytes:.2f} GB",
        "method": "{method}",
        "recall": "{recall:.3f}",
    }
    if ranks > 1:
        del columns["of which search"], columns["recall"]
    else:
        del columns["processor seconds of a rank"]
    _print(f"growth (SUM-3, {dimensions} dimensions, {threads} threads)", columns, measured)


@bench.command(name="train")
def train(
    rounds: Annotated[int, counted("Rounds; each trains two epochs of every setting.")] = 5,
    samples: Annotated[int, counted("Samples per epoch.", "--samples", "-n")] = 320,
    data: Annotated[
        str, typer.Option(help="Data set: mnist, with the paper's network, or digits, without a download.")
    ] = "mnist",
    engine: Annotated[EngineName, typer.Option(help="The loss function on candidates.")] = "semantic",
    batch: Annotated[list[int] | None, counted("Samples per step; repeat for several. Default: 64.")] = None,
    k: Annotated[int, counted("Neighbours per instance.", "-k")] = 1,
    data_root: DataRoot = None,
    out: Kept = None,
    json: Json = False,
) -> None:
    """Measure the share of training time that pruning takes: SUM-3, with trained and frozen encoders."""
    base = RunConfig(data=data, samples=samples, engine=engine, k=k, objective="none", data_root=data_root)
    settings = {"data": data, "engine": engine, "k": k, "samples": samples, "rounds": rounds}
    measured = []
    with writable(*([] if out is None else [out])), progress_bars() as report:
        for size in batch or [64]:
            rows = bench_train.measure_overhead(replace(base, batch=size), rounds, report)
            for row in rows:
                if out is not None:
                    own = {name: row[name] for name in ("batch", "objective", "encoder")}
                    add_measurement(out, "train", settings | own, row)
            measured += rows
    threads = torch.get_num_threads()
    if json:
        print_json({"data": data, "engine": engine, "k": k, "threads": threads, "rows": measured})
        return
    columns = {
        "batch": "{batch}",
        "objective": "{objective}",
        "encoder": "{encoder}",
        "ms per batch": "{milliseconds_per_batch:.1f}",
        "of which pruning": "{pruning_milliseconds_per_batch:.2f}",
        "ms before training": "{pruning_milliseconds_before_training:.1f}",
        "share": "{pruning_share:.2%}",
        "highest": "{pruning_share_highest:.2%}",
    }
    shown = [row | ({"encoder": "–"} if row["objective"] == "none" else {}) for row in measured]
    _print(f"SUM-3 on {data}, medians ({threads} threads)", columns, shown)


@bench.command(name="loss")
def loss(
    rounds: Annotated[int, counted("Rounds per task; a tenth of it for tasks larger than SUM-4.")] = 200,
    slots: Annotated[list[int] | None, counted("Digits per sum; repeat for several.", most=MOST_SLOTS)] = None,
    json: Json = False,
) -> None:
    """Compare the semantic loss on a lattice and on candidates with KLay circuits: loss and gradient, batches of 64."""
    with progress_bars() as report:
        measured = bench_loss.race_losses(rounds, report, slots=tuple(slots or bench_loss.SLOTS))
    threads, grown = torch.get_num_threads(), bench_loss.growth(measured)
    if json:
        print_json({"batch": bench_loss.BATCH, "threads": threads, "rows": measured, "lattice_growth": grown})
        return
    circuits = [name for name in METHODS if name.startswith("circuit")]
    rows = [
        [
            row["task"],
            *(_two_digits(row["milliseconds"].get(name)) for name in METHODS),
            *(_two_digits(row["times_slower_than_lattice"][name]) for name in circuits),
        ]
        for row in measured
    ]
    heads = ["task", *METHODS.values(), *(f"{METHODS[name]} ÷ lattice" for name in circuits)]
    output.print(table(f"loss and gradient, batches of 64, median milliseconds ({threads} threads)", heads, rows))
    if grown is not None:
        output.print(
            f"the lattice takes {grown['times']:.0f} times as long on {grown['to']} digits as on {grown['from']}; "
            f"the square of the digits grows {grown['square']:.0f} times"
        )


@bench.command(name="align")
def align(
    rounds: Rounds = 20,
    clips: Annotated[int, counted("Clips in a batch.")] = 64,
    frames: Annotated[int, counted("Frames of a clip.")] = 128,
    actions: Annotated[int, counted("Actions of a text.")] = 12,
    json: Json = False,
) -> None:
    """Compare alignments with a state machine's lattice and PyTorch's CTC: loss and gradient of a batch of clips."""
    with progress_bars() as report:
        document = bench_loss.race_alignments(rounds, report, clips, frames, actions)
    threads = torch.get_num_threads()
    if json:
        print_json(document | {"threads": threads})
        return
    ratios = document["times_slower_than_alignments"]
    rows = [[name, f"{value:.1f}", _two_digits(ratios.get(name))] for name, value in document["milliseconds"].items()]
    title = f"{clips} clips of {frames} frames, {actions} actions: loss and gradient ({threads} threads)"
    output.print(table(title, ["", "median ms", "÷ alignments"], rows))


@bench.command(name="infer")
def infer(
    rule: RuleName = "sum",
    slots: Slots = 4,
    samples: Annotated[
        list[int] | None, counted("Samples in the pool; repeat for several. Default: 1,000.", "--samples", "-n")
    ] = None,
    data: Data = "mnist",
    rounds: Annotated[int, counted("Rounds that compare list and lattice.")] = 5,
    seed: Annotated[int, typer.Option(min=0, max=LAST_SEED, help="Seed of the random draws.")] = 0,
    data_root: DataRoot = None,
    json: Json = False,
) -> None:
    """Measure joint inference: seconds, memory, labels right; and the time of a round by list and by lattice."""
    base = RunConfig(rule=rule, slots=slots, data=data, seed=seed, data_root=data_root)
    pools = [replace(base, samples=n) for n in samples or [1_000]]
    with progress_bars() as report:
        measured = [bench_infer.measure_inference(config, rounds, report) for config in pools]
    threads = torch.get_num_threads()
    if json:
        print_json({"data": data, "threads": threads, "rows": measured})
        return
    pool = {"pool": "{task}, n={samples:,}"}
    costs = pool | {
        "candidates": "{candidates:,}",
        "graph": "{neighbours_seconds:.1f} s",
        "inference": "{inference_seconds:.1f} s",
        "peak": "–" if measured[0]["peak_gigabytes"] is None else "{peak_gigabytes:.1f} GB",
        "right": "{right:.1%}",
        "gold kept": "{gold_kept:.1%}",
    }
    _print(f"joint inference on {data}, eight neighbours by outlines ({threads} threads)", costs, measured)
    races = {"list, ms": "list_milliseconds", "lattice, ms": "lattice_milliseconds", "list ÷ lattice": "times"}
    columns = pool | {head: f"{{round[{name}]:.1f}}" for head, name in races.items()}
    _print("time of the messages through the formulas, in a round with four starting points", columns, measured)


@bench.command(name="ceiling")
def ceiling(
    rule: RuleName = "max",
    slots: Slots = 4,
    samples: Annotated[int, counted("Samples to learn from.", "--samples", "-n")] = 1_000,
    data: Data = "mnist",
    seeds: Annotated[int, counted("How often to draw the samples.")] = 10,
    first_seed: Annotated[int, typer.Option(min=0, max=LAST_SEED, help="The first seed.")] = 0,
    data_root: DataRoot = None,
    json: Json = False,
) -> None:
    """Measure how many held-out images belong to a class that the samples identify, if each class has one label.

    Two classes that can exchange names without contradicting any sample are
    not identified. The second figure considers only namings that give
    different classes different names, so it is at least as large.
    """
    base = RunConfig(rule=rule, slots=slots, samples=samples, data=data, data_root=data_root)
    measured = bench_ceiling.measure_ceiling(base, range(first_seed, first_seed + seeds))
    if json:
        print_json({"rule": rule, "slots": slots, "samples": samples, "data": data, **measured})
        return
    title = (
        f"{rule.upper()}-{slots} on {data}, n={samples:,}: {measured['mean']:.1%} of the held-out images identified, "
        f"{measured['mean_distinct']:.1%} if names are distinct"
    )
    rows = [[str(row["seed"]), *_identified(row), *_identified(row["distinct"])] for row in measured["rows"]]
    output.print(table(title, ["seed", "identified", "left open", "if names are distinct", "left open"], rows))


@bench.command(name="zoo")
def zoo(
    line: Annotated[
        list[str] | None, typer.Option(help="Only this kind of pool: a name, or a pattern such as 'sum-3/*'; repeat.")
    ] = None,
    seeds: Annotated[int | None, counted("Pools of each kind; default: 10, with --quick 1.", most=1_000)] = None,
    first_seed: Annotated[int, typer.Option(min=0, max=2**19, help="The first seed.")] = 0,
    workers: Annotated[int, counted("Number of processes, with one thread each.", most=1_000)] = 2,
    out: Annotated[Path, typer.Option("--out", "-o", help="File of the results, a line of JSON for each pool.")] = Path(
        "results/zoo.jsonl"
    ),
    page: Annotated[Path | None, typer.Option(help="Also write the results as an HTML page.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="One kind of pool for each rule and difficulty; takes minutes.")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="Also run pools that are in the file already.")] = False,
    data_root: DataRoot = None,
    json: Json = False,
) -> None:
    """Test joint inference and the baseline EM on 80 kinds of pools: labels right, and which promises hold.

    Pools that are in the file are not run again, so the same command
    continues an interrupted run. A pool that fails does not end the run.
    Kinds of pool whose data set is missing are skipped and named.
    """
    if page is not None:
        require("matplotlib", extra="report")
    chosen = lines_like(line or [])
    chosen = bench_zoo.quick_lines(chosen) if quick else chosen
    skipped = {own.name: reason for own in chosen if (reason := missing_data(own.data, data_root)) is not None}
    numbers = range(first_seed, first_seed + (seeds or (1 if quick else 10)))
    jobs = [bench_zoo.ZooJob(own, seed, data_root) for seed in numbers for own in chosen if own.name not in skipped]
    with writable(out, *([page] if page else [])), progress_bars() as report:
        rows = bench_zoo.run_zoo(jobs, out, workers=workers, progress=report, again=again)
    for name, reason in skipped.items():
        errors.print(f"skipped {name}: {reason}", soft_wrap=True)
    lines, kept = summarise(rows), promises(rows)
    if page is not None:
        write_zoo_page(rows, page, skipped=skipped)
    if json:
        kept_as_json = [asdict(promise) for promise in kept]
        print_json({"lines": lines, "promises": kept_as_json, "skipped": skipped, "rows": rows})
    else:
        _print_zoo(lines)
        output.print(table("promises", PROMISE_COLUMNS, [promise_cells(promise) for promise in kept]))
    failed = [f"{row['line']}, seed {row['seed']}: {row['error']}" for row in rows if row["error"] is not None]
    for problem in failed:
        errors.print(f"failed: {problem}", soft_wrap=True)
    if failed:
        raise typer.Exit(1)


@bench.command(name="ask")
def ask(
    rule: RuleName = "max",
    slots: Slots = 3,
    samples: Annotated[int, counted("Samples in a pool.", "--samples", "-n")] = 100,
    labels: Annotated[int, counted("Labels to ask for.")] = 10,
    data: Data = "digits",
    seeds: Annotated[int, counted("Number of pools.")] = 10,
    first_seed: Annotated[int, typer.Option(min=0, max=LAST_SEED, help="The first seed.")] = 0,
    data_root: DataRoot = None,
    json: Json = False,
) -> None:
    """Compare labels that `posterior.ask` asks for with random known labels: how many labels are right afterwards."""
    base = RunConfig(rule=rule, slots=slots, samples=samples, data=data, data_root=data_root)
    with progress_bars() as report:
        measured = bench_ask.measure_asking(base, range(first_seed, first_seed + seeds), labels, report)
    if json:
        print_json({"rule": rule, "slots": slots, "samples": samples, "data": data, "labels": labels, **measured})
        return
    columns = {"seed": "{seed}", "no label": "{none:.1%}", "asked": "{asked:.1%}", "random": "{random:.1%}"}
    title = f"{rule.upper()}-{slots} on {data}, n={samples:,}: labels right with {labels} known labels"
    _print(title, columns, [*measured["rows"], {"seed": "mean", **measured}])


@bench.command(name="ablation")
def ablation(
    change: Annotated[list[str] | None, typer.Option(help="Only this change, such as 'walkers=2'; repeat.")] = None,
    seeds: Annotated[int, counted("Pools of each kind.", most=1_000)] = 2,
    first_seed: Annotated[int, typer.Option(min=0, max=2**19, help="The first seed.")] = 0,
    workers: Annotated[int, counted("Number of processes, with one thread each.", most=1_000)] = 2,
    out: Annotated[Path, typer.Option("--out", "-o", help="File of the results, a line of JSON for each pool.")] = Path(
        "results/ablation.jsonl"
    ),
    data_root: DataRoot = None,
    json: Json = False,
) -> None:
    """Measure the effect of each constant and mechanism of joint inference, on a part of the zoo.

    One thing is changed at a time. Pools that are in the file are not run
    again, so the same command continues an interrupted run.
    """
    known = bench_ablation.changes()
    unknown = [name for name in change or [] if name not in known]
    if unknown:
        raise InputError(f"expected a change such as {', '.join(known[1:4])}, got {unknown[0]!r}; all: {known[1:]}")
    names = [known[0], *(name for name in change or known[1:] if name != known[0])]
    with writable(out), progress_bars() as report:
        rows = bench_ablation.run_ablation(
            names, range(first_seed, first_seed + seeds), out, workers=workers, progress=report, data_root=data_root
        )
    if json:
        print_json({"rows": rows})
        return
    shares = ("best_naming_right", "gold_kept", "gold_kept_lowest", "candidates_kept", "accuracy_gap")
    cells = [
        [
            row["change"],
            f"{row['settled']} of {row['pools']}",
            *(percent(row[share]) for share in shares),
            f"{row['troubled_believed']} of {row['troubled']}",
            _two_digits(row["seconds"]),
        ]
        for row in rows
    ]
    heads = ["change", "settled", "right", "gold kept", "lowest", "left", "gap", "trouble believed", "seconds"]
    output.print(table("joint inference, one change at a time", heads, cells))


def _print(title: str, columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a table. `columns` maps each head to the format string of its cells."""
    output.print(table(title, list(columns), [[text.format(**row) for text in columns.values()] for row in rows]))


def _print_zoo(lines: Sequence[Mapping[str, Any]]) -> None:
    """Print the results as two tables, which fit narrow windows."""
    nothing: dict[str, None] = dict.fromkeys(("labels_right", "gold_kept", "seconds"))
    labels, pruned = [], []
    for own in lines:
        em = own["em"] or nothing
        right = (own["labels_right"], own["labels_right_lowest"], em["labels_right"], own["accuracy_gap"])
        kept = (own["gold_kept"], own["gold_kept_lowest"], em["gold_kept"], own["candidates_kept"])
        seconds = [_two_digits(own["seconds"]), _two_digits(em["seconds"])]
        labels.append([own["line"], verdicts(own), *map(percent, right)])
        pruned.append([own["line"], *map(percent, kept), *seconds])
    heads = ["line", "verdicts", "right", "lowest", "by EM", "gap"]
    output.print(table("the zoo: labels right, and the gap to the accuracy that is expected", heads, labels))
    heads = ["line", "gold kept", "lowest", "by EM", "left", "seconds", "EM"]
    output.print(table("the zoo: gold labels kept and candidates left, 95 % of the probability kept", heads, pruned))


def _identified(row: dict[str, Any]) -> list[str]:
    return [f"{row['identified']:.1%}", ", ".join(map(str, row["open"])) or "–"]


def _two_digits(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
