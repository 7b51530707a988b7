"""Benchmarks by name: Clipper's own, one in a file of the user's, and one of an installed package."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from clipper.benchmarks import Benchmark, RunConfig, benchmark_named, register, run
from clipper.cli.app import app
from clipper.errors import InputError

PAGE = Path(__file__).parents[2] / "docs" / "new-task.md"


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """The task of the page, as its reader saves it."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    path = tmp_path / "my_task.py"
    path.write_text(blocks[0], encoding="utf-8")
    return path


def test_a_task_with_its_own_data_takes_one_file_of_sixty_lines(task: Path) -> None:
    assert len(task.read_text().splitlines()) <= 60
    record, page = task.with_name("run.json"), task.with_name("run.html")
    size = ["--slots", "2", "--samples", "60", "--epochs", "2"]
    command = ["train", "--rule", f"{task}:product7", *size, "--out", str(record), "--report", str(page)]
    ended = CliRunner().invoke(app, command, catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    document = json.loads(record.read_text())
    assert document["config"]["rule"] == f"{task}:product7"
    assert document["config"]["data"] == "product7"
    assert 0 < document["last"]["retained"] < 1
    assert document["last"]["gold"] > 0.5
    assert len(json.loads(record.with_suffix(".inspection.json").read_text())["samples"]) == 60
    assert "inspector" in page.read_text()


@pytest.mark.parametrize("engine", ["dolphin", "ised"])
def test_every_engine_learns_from_a_file(task: Path, engine: str) -> None:
    config = RunConfig(rule=f"{task}:product7", slots=2, samples=20, epochs=1, engine=engine)  # type: ignore[arg-type]
    assert run(config).last.loss > 0


def test_a_file_has_the_benchmarks_encoder_for_joint_inference(task: Path) -> None:
    record = run(RunConfig(rule=f"{task}:product7", slots=2, samples=16, epochs=1, objective="joint"))
    assert record.last.gold is not None


def test_the_same_seed_gives_the_same_first_weights_and_samples(task: Path) -> None:
    made = [benchmark_named(f"{task}:product7")(RunConfig(rule=f"{task}:product7", seed=seed)) for seed in (3, 3, 4)]
    weights = [next(each.network.parameters()) for each in made]
    assert weights[0].equal(weights[1])
    assert not weights[0].equal(weights[2])
    assert made[0].samples.inputs.equal(made[1].samples.inputs)
    assert not made[0].samples.inputs.equal(made[2].samples.inputs)


def test_an_installed_package_names_its_benchmarks(task: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = task.parent / "my_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    points = "installed = my_task:product7\nbroken = my_task:nothing\nabsent = no_such_module:build\n"
    (info / "entry_points.txt").write_text(f"[clipper.benchmarks]\n{points}")
    monkeypatch.syspath_prepend(task.parent)
    assert isinstance(benchmark_named("installed")(RunConfig(rule="installed", samples=4, slots=2)), Benchmark)
    for name in ("broken", "absent"):
        with pytest.raises(InputError, match=f"the benchmark {name} of .* cannot be loaded"):
            benchmark_named(name)
    sys.modules.pop("my_task", None)
    with pytest.raises(InputError, match=r"align.*hwf.*installed.*max.*sum.*vqar.*, got 'median'"):
        benchmark_named("median")


def test_a_plain_function_is_a_benchmark(tmp_path: Path, task: Path) -> None:
    plain = tmp_path / "plain.py"
    plain.write_text(task.read_text().replace('@register("product7")\n', ""))
    assert run(RunConfig(rule=f"{plain}:product7", slots=2, samples=10, epochs=1)).config["data"] == "product7"


def test_inputs_need_not_fit_into_memory(tmp_path: Path, task: Path) -> None:
    lazy = tmp_path / "lazy.py"
    lazy.write_text(task.read_text().replace("Samples(images[chosen],", "Samples(lambda i: images[chosen[i]],"))
    config = RunConfig(rule=f"{lazy}:product7", slots=2, samples=20, epochs=1, encoder="auto", when="once")
    loaded, held = run(config).last, run(replace(config, rule=f"{task}:product7")).last
    assert (loaded.loss, loaded.accuracy, loaded.retained) == (held.loss, held.accuracy, held.retained)
    assert loaded.retained < 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 / 0", r"cannot be run \(ZeroDivisionError"),
        ("import no_such_module", r"cannot be run \(ModuleNotFoundError"),
        ("def )", "line 1 of .* is no valid Python"),
        ("", "has no 'build'"),
        ("build = 3", "expected build to be a function"),
        ("def build(config): return 3", "expected build to return a Benchmark, got 3"),
    ],
)
def test_a_file_that_holds_no_benchmark_is_refused_in_words(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "broken.py"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        run(RunConfig(rule=f"{path}:build", samples=2, slots=2, epochs=1))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        benchmark_named(f"{tmp_path}/absent.py:build")


def test_a_changed_file_is_read_again(task: Path) -> None:
    rule = f"{task}:product7"
    assert benchmark_named(rule) is benchmark_named(rule)
    task.write_text(task.read_text().replace('register("product7")', 'register("product7", data=("own",))') + "\n")
    assert RunConfig(rule=rule).data == "own"


def test_the_names_of_clippers_own_are_taken() -> None:
    benchmark_named("sum")
    with pytest.raises(InputError, match="'sum' is Clipper's own"):
        register("sum")(lambda _: None)  # type: ignore[arg-type, return-value]


def test_a_function_without_a_module_can_be_registered_again() -> None:
    namespace: dict[str, object] = {"register": register}
    for text in ("'first'", "'second'"):  # as `exec` runs the code blocks of a page
        exec(f"@register('again')\ndef again(config): return {text}", namespace)
    assert benchmark_named("again").build(RunConfig()) == "second"


def test_reading_a_record_runs_no_file(tmp_path: Path) -> None:
    path = tmp_path / "evil.py"
    path.write_text("raise SystemExit('run')")
    values = RunConfig().as_dict() | {"rule": f"{path}:build", "data": "build"}
    assert RunConfig.from_dict(values).rule == f"{path}:build"
