"""The command line: wrong arguments and files, interruptions, closed pipes. One message each, and nothing written."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.hardening.attack import EFFORT, ROOT, Clippers, listing

MAIN = "from clipper.cli import main; import sys; sys.argv[0] = 'clipper'; main()"
HUGE, LONG = str(2**70), "n" * 300
COMMANDS = ("prune", "identify", "train", "bench", "table", "results", "demo", "data", "clips")


def alone(
    *arguments: object, code: str = MAIN, cwd: Path = ROOT, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own."""
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=cwd,
        env=os.environ | paths | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def plain(text: str) -> str:
    """Text without the frames around it, in one line."""
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", text).split())


# What is loaded


@pytest.mark.parametrize("argument", ["--help", "--version", "-h"])
def test_help_and_version_load_no_tensor_library(argument: str) -> None:
    code = f"import sys, atexit; atexit.register(lambda: print('torch' in sys.modules, file=sys.stderr)); {MAIN}"
    ended = alone(argument, code=code)
    assert ended.returncode == 0
    assert ended.stderr.strip() == "False"


def test_the_list_of_commands_says_of_each_what_its_own_help_says(clippers: Clippers) -> None:
    listed = plain(clippers.run("--help").out).partition("Commands")[2]
    for command in COMMANDS:
        own = plain(clippers.run(command, "--help").out)
        told = re.search(rf" {command} (.*?\.)(?= [a-z]+ [A-Z]|$)", listed)
        assert told, command
        assert told[1] in own


def test_public_names_are_loaded_on_first_access_and_seen_before() -> None:
    code = """
import sys, pydoc, clipper
assert "torch" not in sys.modules
assert set(clipper.__all__) | {"candidates", "proximity", "__version__"} <= set(dir(clipper))
from clipper import Candidates
assert clipper.Candidates is Candidates is clipper.candidates.Candidates
assert clipper.engines.SemanticLoss and clipper.proximity.Outlines and clipper.training and clipper.errors
assert not hasattr(clipper, "nonsense")
text = pydoc.render_doc(clipper)
assert all(name in text for name in clipper.__all__)
"""
    ended = alone(code=code)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(
    ("words", "place", "expected"), [("clipper tr", 1, "train"), ("clipper train --obj", 2, "--objective")]
)
def test_shells_still_complete_commands_and_options(words: str, place: int, expected: str) -> None:
    asked = {"_CLIPPER_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(place)}
    assert expected in alone(**asked).stdout.split()


# How commands end


INTERRUPTED_IMPORT = """
import sys
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupts())
"""


@pytest.mark.parametrize("module", ["typer", "rich.console", "clipper.cli.app", "clipper.cli.train", "torch"])
def test_an_interruption_while_modules_load_ends_quietly(module: str) -> None:
    ended = alone("train", code=INTERRUPTED_IMPORT.format(module=module) + MAIN)
    assert ended.returncode == 130
    assert ended.stderr.strip() == ""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGINT") or os.name == "nt", reason="sends a signal")
def test_an_interrupted_training_says_how_to_go_on(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "train", "--epochs", "100000", "--out", str(tmp_path / "run.json")],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while not list(tmp_path.glob("*.pt")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command continues" in err
    assert "Traceback" not in err
    assert not out


@pytest.mark.skipif(os.name == "nt", reason="pipes end otherwise there")
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["nonsense"], ["data", "--json"]])
def test_a_reader_who_goes_away_is_no_error_of_ours(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)  # the reader is gone before the first word
    ended = subprocess.run(
        [sys.executable, "-c", MAIN, *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "CLIPPER_DATA": ""},
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(writing)
    assert "Traceback" not in ended.stderr
    assert "BrokenPipe" not in ended.stderr


def test_a_bug_is_still_told_with_its_traceback() -> None:
    code = "import typer\ndef broken(*_, **__): raise RuntimeError('a bug')\ntyper.echo = broken\n" + MAIN
    ended = alone("--version", code=code)
    assert ended.returncode == 1
    assert "Traceback" in ended.stderr
    assert "a bug" in ended.stderr


IN_TURN = """
from clipper.cli import main
codes = []
for limit, most, line in limits_and_lines:
    if limit:
        import resource
        kept = resource.getrlimit(getattr(resource, limit))
        resource.setrlimit(getattr(resource, limit), (most, kept[1]))
    sys.argv = ["clipper", *line.split()]
    try:
        main()
    except SystemExit as end:
        codes.append(end.code)
    if limit:
        resource.setrlimit(getattr(resource, limit), kept)
print(codes)
"""


def in_turn(folder: Path, limits_and_lines: list[tuple[str, int, str]], before: str = "") -> str:
    """Commands in one process, each under a limit of the system; all are refused, and what they said comes back."""
    code = f"import sys\n{before}\nlimits_and_lines = {limits_and_lines!r}\n{IN_TURN}"
    ended = alone(code=code, cwd=folder)
    assert ended.stdout.strip() == str([1] * len(limits_and_lines)), ended.stderr
    assert ended.stderr.count("error: ") == len(limits_and_lines)
    assert "Traceback" not in ended.stderr
    assert not list(folder.iterdir()), "expected nothing to be written"
    return ended.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits files and the address space")
def test_a_full_disk_and_too_little_memory_are_told_in_words(tmp_path: Path) -> None:
    told = in_turn(
        tmp_path,
        [
            ("RLIMIT_FSIZE", 1000, "train --samples 12 --slots 2 --epochs 1 --out new/run.json"),
            ("RLIMIT_FSIZE", 1000, "table hwf --show --out new"),
            ("RLIMIT_AS", 8 * 2**30, "bench align --clips 2000000000 --rounds 1 --json"),
        ],
    )
    assert told.count("File too large") == 2
    assert "not enough memory" in told


MISSING = """
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "matplotlib":
            raise ImportError("not installed")
sys.meta_path.insert(0, Missing())
"""


@pytest.mark.slow
def test_a_missing_extra_is_named_before_the_work_and_not_after_it(tmp_path: Path) -> None:
    lines = ["train --report page.html --out new/run.json --epochs 100000", "demo --seeds 100", "table sum --seeds 500"]
    told = in_turn(tmp_path, [("", 0, line) for line in lines], MISSING)
    assert told.count("pip install 'clipper-nesy[report]'") == 3


# Wrong command lines


def furnish(folder: Path) -> None:
    """Everything that a path may wrongly lead to."""
    for name in ("dir.json", "dir.html", "dir.md", "empty", "table/sum.html", "demo/index.html", "clips/preview.gif",
                 "ledger/records.jsonl", "checkpoint.pt"):  # fmt: skip
        (folder / name).mkdir(parents=True)
    (folder / "file").write_text("no folder")
    (folder / "other.json").write_text('{"format": "another"}')
    (folder / "list.json").write_text("[1, 2]")
    (folder / "broken.json").write_bytes(b"\xff\xfe{")
    (folder / "stale.pt").write_bytes(b"no checkpoint")
    (folder / "damaged").mkdir()
    (folder / "damaged" / "records.jsonl").write_text('{"format": "clipper ledger 1", "config": {}}\n')
    (folder / "none").mkdir()
    (folder / "none" / "records.jsonl").write_bytes(b"")


TRAIN = "train --samples 12 --slots 2 --epochs 1 --out new/run.json"
WRONG_OPTIONS: dict[str, dict[str, str]] = {
    TRAIN: {
        "--lr": f"nan inf -inf 0 -1 abc 1e400 {HUGE}x",
        "--seed": f"{HUGE} -1 1.5 x",
        "--epochs": f"0 -1 x {HUGE} 1e3",
        "--slots": f"0 -3 x {HUGE} 1000000000 1001",
        "--samples": f"0 -1 x {HUGE} 1000000000000 100000",
        "--batch": f"0 -1 {HUGE}",
        "--names": f"0 -1 {HUGE}",
        "--per-sample": f"-1 {HUGE}",
        "--bank": f"-5 {HUGE}",
        "--passes": f"0 -1 2 {HUGE}",
        "-k": f"0 -1 {HUGE}",
        "--entropy": "nan inf -1",
        "--evaluate-every": "0 -1",
        "--checkpoint-steps": "0 -1 x",
        "--engine-option": "k=abc k =1 magic=1 entropy=abc entropy=-1 k=[1] k=1e400 k={}",
        "--network": "Transformer MnistCnn HwfCnn CifarResNet18 ClipCnn",
        "--encoder": "nope features resnet1000",
        "--engine": "nope ISED",
        "--objective": "nope Exact",
        "--rule": "nope hwf nope.py:NAME",
        "--data": "nope hwf clips vqar",
        "--optimiser": "nope",
        "--when": "once nope",
        "--out": f"dir.json file/run.json run.txt {LONG}.json other.json broken.json list.json stale.json",
        "-o": "checkpoint.json",
        "--report": f"dir.html file/page.html page.pdf {LONG}.html .",
        "--tensorboard": f"file file/x {LONG}",
        "--data-root": "nowhere file",
        "--nonsense": "1",
    },
    f"{TRAIN} --engine dolphin": {"--engine-option": "k=abc k=0 provenance=nope provenance=3 samples=1"},
    f"{TRAIN} --engine scallop": {"--engine-option": "k=abc k=0 k=1000 provenance=damp"},
    f"{TRAIN} --engine ised": {"--engine-option": "samples=0 samples=x k=1"},
    f"{TRAIN} --engine abl-sim": {"--engine-option": "beam=0 similarity=2 revisions=-1"},
    f"{TRAIN} --engine sampled": {"--engine-option": "per_sample=0 per_sample=x"},
    "train --rule align --data clips --samples 4 --epochs 1 --out new/run.json": {
        "--engine": "ised abl-sim",
        "--slots": "1",
        "--network": "MnistCnn",
        "--encoder": "features",
    },
    "train --rule vqar --data scenes --samples 4 --epochs 1 --out new/run.json": {
        "--engine": "ised abl-sim",
        "--network": "MnistCnn",
        "--encoder": "pixels resnet18 middle",
    },
    "identify --rule sum --classes 3 --slots 2": {
        "": "file nowhere",
        "--rule": "nope nope.py:NAME file.py:NAME sum:x",
        "--classes": f"0 -1 x {HUGE} 1000000000",
        "--slots": f"0 -1 x {HUGE} 1001",
        "--targets": "99 x , 1,99 (1 1e400",
        "--labels": "nowhere nowhere.csv file dir.json",
        "--budget": f"0 -1 x {HUGE}",
    },
    "identify": {"": "nowhere file dir.json empty", "--rule": "sum", "--classes": "3", "--labels": "nowhere.csv"},
    "bench prune": {"--rounds": f"0 -1 x {HUGE}", "--data": "nope", "--nonsense": "1"},
    "bench train --data digits": {"--rounds": "0 -1", "--samples": f"0 {HUGE} 100000", "-k": "0", "--engine": "nope"},
    "bench train": {"--data": "nope clips scenes mugen", "--data-root": "nowhere file"},
    "bench loss": {"--rounds": "0 -1", "--slots": f"0 -1 x 100000 {HUGE}"},
    "bench align": {"--rounds": "0", "--clips": "0 -1", "--frames": "0 1 -1", "--actions": "0 1000"},
    "bench infer --data digits": {"--rule": "nope hwf", "--slots": "0 30 1001", "-n": "0 -1 1000000", "--rounds": "0",
                                  "--seed": f"-1 {HUGE}"},
    "bench ceiling --data digits": {"--rule": "nope hwf", "--slots": "0 1001", "--samples": "0 1000000", "--seeds": "0",
                                    "--first-seed": f"-1 {HUGE}", "--data": "nope vqar clips"},
    "bench zoo --line xor-3/digits/5 --out new/zoo.jsonl": {
        "--line": "nope sum-9/*",
        "--seeds": f"0 -1 x {HUGE}",
        "--first-seed": f"-1 x {HUGE}",
        "--workers": f"0 -1 {HUGE}",
        "--out": f"file file/x dir.json {LONG}",
        "--page": f"file/x.html dir.html {LONG}.html",
        "--data-root": "nowhere file",
    },
    "table sum --quick --out new": {
        "--seeds": f"0 -1 x {HUGE}",
        "--epochs": f"0 -1 {HUGE}",
        "--samples": f"0 -1 {HUGE}",
        "--jobs": f"0 -1 {HUGE}",
        "--engine": "nope",
        "--variant": "nope",
        "--column": "SUM-9",
        "--encoder": "nope features",
        "--out": f"file file/x table {LONG} damaged ledger",
        "--data-root": "nowhere file",
    },
    "results --records none": {"--to": f"dir.md file/r.md {LONG}.md .",
                               "--records": "nowhere empty file damaged ledger"},
    "demo --seeds 1 --epochs 1": {"--seeds": f"0 -1 {HUGE}", "--epochs": f"0 x {HUGE}",
                                  "--out": f"file file/x demo {LONG}"},
    "data verify": {"": "nope ../mnist", "--data-root": "nowhere file"},
    "data fetch": {"": f"nope digits vqar hwf mugen {LONG} mnist", "mnist --data-root": "file"},
    "data": {"": "nope", "--data-root": "nowhere file", "--json fetch": "mnist"},
    "clips new --train 2 --test 2": {
        "--train": f"0 -1 x {HUGE}",
        "--test": "0 -1",
        "--frames": f"many 0 5-2 -3 1 {HUGE} 2- - ² 1.5",
        "--actions": "0 many 6-3",
        "--distractors": "nan inf -1",
        "--noise": "nan inf -1 x",
        "--sprites": "nowhere empty file",
        "--scale": f"0 -1 {HUGE}",
        "--seed": f"-1 {HUGE} x",
    },
    "clips --train 2 --test 2": {"": f"file file/x clips {LONG}"},
    "prune -o": {"out.parquet": "one", "out.parquet nowhere": "nowhere", "out.parquet file": "file",
                 "out.parquet empty": "empty"},
}  # fmt: skip
WRONG_LINES = [
    [*command.split(), *option.split(), value]
    for command, options in WRONG_OPTIONS.items()
    for option, values in options.items()
    for value in values.split()
] + [
    ["nonsense"], ["--nonsense"], ["-"], ["train", "extra"], ["train", "--out"], ["bench", "nope"], ["table"],
    ["table", "nope"], ["clips"], ["prune"], ["train", "--out", ""], ["train", "--network", ""],
    ["train", "--encoder", ""],
]  # fmt: skip


def check_refused(clippers: Clippers, lines: Iterable[list[str]], folder: Path) -> None:
    """Every line is refused in words, says nothing on standard output and leaves the folder as it was.

    What the user has in the cache is out of sight: there, `data fetch` would have nothing to refuse.
    """
    furnish(folder)
    before, paths = listing(folder), sorted(folder.rglob("*"))
    faults = []
    for line in lines:
        ended = clippers.run(*line, cwd=folder, CLIPPER_OFFLINE="1", XDG_CACHE_HOME=str(folder / "no cache"))
        try:
            ended.check_refused()
            assert not ended.out, f"expected nothing on standard output, got {ended.out[:200]}"
            assert sorted(folder.rglob("*")) == paths, "expected nothing to be written"
            assert listing(folder) == before, "expected files to stay as they were"
        except AssertionError as error:
            faults.append(f"clipper {' '.join(line)[:160]}: {str(error)[:600]}")
    assert not faults, f"{len(faults)} faults:\n" + "\n".join(faults)


@pytest.mark.parametrize("command", COMMANDS)
def test_wrong_command_lines_are_refused_in_words_and_write_nothing(
    command: str, clippers: Clippers, tmp_path: Path
) -> None:
    assert len(WRONG_LINES) >= 150
    check_refused(clippers, [line for line in WRONG_LINES if line[0] == command], tmp_path)


def test_what_is_no_command_is_refused(clippers: Clippers, tmp_path: Path) -> None:
    check_refused(clippers, [line for line in WRONG_LINES if line[0] not in COMMANDS], tmp_path)


def test_arguments_thrown_together_are_answered_or_refused(clippers: Clippers, tmp_path: Path) -> None:
    furnish(tmp_path)
    rng = random.Random(0)
    options = {option: values.split() for option, values in WRONG_OPTIONS[TRAIN].items() if option != "--nonsense"}
    good = {"--lr": "0.1", "--seed": "3", "--batch": "4", "--objective": "paper", "--engine": "dolphin", "-k": "2"}
    for _ in range(30 * EFFORT):
        line = TRAIN.split()
        for option in rng.sample(sorted(options), 2):
            line += [option, rng.choice([*options[option], *([good[option]] if option in good else [])])]
        before = listing(tmp_path)
        ended = clippers.run(*line, cwd=tmp_path, CLIPPER_OFFLINE="1")
        assert "Traceback" not in ended.err, (line, ended.err[-2000:])
        if ended.code:
            ended.check_refused()
            assert not ended.out, line
            assert listing(tmp_path) == before, line


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_folder_that_may_not_be_written_is_refused_before_the_work(clippers: Clippers, tmp_path: Path) -> None:
    (tmp_path / "fixed").mkdir()
    (tmp_path / "fixed").chmod(0o500)
    for line in (
        ["train", "--out", "fixed/r.json"],
        ["demo", "--out", "fixed"],
        ["clips", "fixed"],
        ["table", "sum", "--out", "fixed"],
    ):
        ended = clippers.run(*line, cwd=tmp_path)
        ended.check_refused()
        assert "Permission denied" in ended.err


# What is printed where


def strict(text: str) -> object:
    """One JSON document; NaN and Infinity are no JSON."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_json_is_the_only_thing_on_standard_output(clippers: Clippers, tmp_path: Path) -> None:
    for line in (
        "train --samples 12 --slots 2 --epochs 1 --json",
        "clips drawn --train 2 --test 2 --frames 8 --actions 2 --json",
        "bench align --rounds 1 --clips 2 --frames 8 --actions 3 --json",
        "bench ceiling --data digits --samples 200 --seeds 1 --json",
        "identify --rule max --classes 10 --slots 3 --json",
        "table sum --show --json",
        "data --json",
        "data --data-root . --json",
    ):
        ended = clippers.run(*line.split(), cwd=tmp_path, CLIPPER_OFFLINE="1", CLIPPER_DATA="")
        assert ended.code == 0, ended.err
        strict(ended.out)
        assert "Traceback" not in ended.err


@pytest.mark.parametrize("name", ["[bold]run[/].json", "[/x].json", "ünï 漢.json", "a\nb.json"])
def test_the_name_of_a_file_is_printed_as_it_is(name: str, clippers: Clippers, tmp_path: Path) -> None:
    ended = clippers.run("train", "--samples", 12, "--slots", 2, "--epochs", 1, "--out", tmp_path / name)
    assert ended.code == 0, ended.err
    assert str(tmp_path / name) in ended.out
    again = clippers.run("train", "--samples", 12, "--slots", 2, "--epochs", 2, "--out", tmp_path / name)
    again.check_refused()
    assert str(tmp_path / name) in again.err


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="names of files are text elsewhere")
def test_a_name_that_is_no_text_and_a_terminal_without_letters_are_printed_somehow(tmp_path: Path) -> None:
    name = os.fsdecode(bytes(tmp_path) + b"/\xff.json")
    arguments = ["train", "--samples", "12", "--slots", "2", "--epochs", "1", "--out", name]
    ended = alone(*arguments, PYTHONIOENCODING="ascii:strict")
    assert ended.returncode == 0, ended.stderr
    assert "udcff.json" in ended.stdout
