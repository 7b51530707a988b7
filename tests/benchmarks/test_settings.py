"""Settings: what a run does, whatever words its configuration has for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.registry import benchmark_named
from clipper.benchmarks.runs import engine_of, run
from clipper.benchmarks.settings import ENGINES, clip_of, run_key, settings_of
from clipper.errors import InputError

SMALL = RunConfig(samples=12, slots=2, epochs=1)


@pytest.mark.parametrize("objective", ["joint", "em"])
def test_a_run_that_prunes_the_pool_says_so_whatever_its_configuration_says(objective):
    config = RunConfig(objective=objective, when="batch", bank=5)
    done = settings_of(config)
    assert (done["k"], done["scope"], done["when"], done["mass"]) == (8, "pool", "once", 0.95)
    assert done["encoder"] == "auto"
    assert run_key(config) == run_key(replace(config, when="once", k=8, encoder="auto", bank=0))


def test_a_run_that_prunes_batches_has_one_neighbour_by_default_and_no_mass():
    done = settings_of(RunConfig(objective="paper"))
    assert (done["k"], done["scope"], done["when"]) == (1, "batch", "batch")
    assert "mass" not in done


@pytest.mark.parametrize(
    "change", [{"k": 2}, {"encoder": "pixels"}, {"when": "once", "encoder": "pixels"}, {"bank": 9}]
)
def test_what_changes_a_pruned_run_changes_its_key_and_no_baselines(change):
    assert run_key(RunConfig(objective="exact", **change)) != run_key(RunConfig(objective="exact"))
    assert run_key(RunConfig(objective="none", **change)) == run_key(RunConfig(objective="none"))


@pytest.mark.parametrize("change", [{"seed": 1}, {"batch": 8}, {"lr": 0.1}, {"per_sample": 9}, {"engine": "dolphin"}])
def test_what_changes_every_run_changes_the_key_of_the_baseline(change):
    assert run_key(RunConfig(objective="none", **change)) != run_key(RunConfig(objective="none"))


def test_an_option_that_is_given_as_it_is_anyway_makes_no_other_run():
    given = RunConfig(engine="scallop", engine_options={"k": 3})
    assert run_key(given) == run_key(RunConfig(engine="scallop"))
    assert run_key(given) != run_key(RunConfig(engine="scallop", engine_options={"k": 10}))


@pytest.mark.parametrize("engine", ENGINES)
def test_the_noted_options_are_those_of_the_engine_that_is_built(engine):
    config = replace(SMALL, engine=engine)
    made = engine_of(config, benchmark_named("sum")(config))
    for name, value in settings_of(config)["engine_options"].items():
        assert getattr(made, name, getattr(made, f"_{name}", None)) == value


def test_a_record_holds_what_the_benchmark_chose_and_where_it_was_made():
    record = run(replace(SMALL, objective="joint"))
    assert record.settings["network"] == "DigitsMlp"
    assert record.settings["encoder"].startswith("Outlines(")
    assert record.settings["k"] == 8
    assert set(record.load) <= {"average", "cores", "before"}
    assert run(replace(SMALL, objective="none")).settings.keys() & {"encoder", "k", "scope", "when"} == set()


def test_a_threshold_takes_the_place_of_a_number_of_neighbours() -> None:
    plain, near = RunConfig(objective="exact"), RunConfig(objective="exact", radius=1.5)
    assert "radius" not in settings_of(plain)  # so that runs that were made before have the same key
    assert settings_of(near) == settings_of(plain) | {"radius": 1.5, "k": None}
    clip = clip_of(near)
    assert clip is not None
    assert (clip.radius, clip.neighbours) == (1.5, None)
    assert run_key(RunConfig(objective="none", radius=1.5)) == run_key(RunConfig(objective="none"))
    with pytest.raises(InputError, match="radius"):
        RunConfig(radius=0.0)
