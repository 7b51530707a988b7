"""rsbench's tasks: what their formulas leave open, and how labels, concepts and calibration are measured."""

import itertools

import pytest
import torch
from torch import nn

from clipper import Candidates
from clipper.benchmarks import kandinsky
from clipper.benchmarks.config import RunConfig
from clipper.benchmarks.registry import benchmark_named
from clipper.benchmarks.runs import run
from clipper.benchmarks.shortcuts import (
    EVEN_ODD,
    HALF,
    LOGIC,
    MATH,
    ConceptQuality,
    Outputs,
    Shortcuts,
    ShortcutTask,
    calibration_error,
    judge,
)
from clipper.benchmarks.tables.catalogue import TABLES
from clipper.benchmarks.tables.selection import Selection
from clipper.benchmarks.tables.summary import CellResult
from clipper.errors import InputError
from clipper.labelling import NamedPool, NamingMixture
from clipper.training import EpochMetrics, Record


def candidates_of(task: ShortcutTask) -> Candidates:
    return Candidates.from_rule(task.value, [task.value(row) for row in task.seen], task.slots, task.classes)


@pytest.mark.parametrize("task", [HALF, LOGIC, MATH])
def test_shortcuts_are_all_wrong_maps_that_keep_every_label(task: ShortcutTask) -> None:
    maps = [
        names
        for names in itertools.product(range(task.classes), repeat=task.classes)
        if all(task.value([names[y] for y in row]) == task.value(row) for row in task.seen)
    ]
    distinct = [names for names in maps if len(set(names)) == task.classes]
    found = Shortcuts.of(candidates_of(task), torch.tensor(task.seen))
    assert (found.maps, found.namings) == (len(maps) - 1, len(distinct))
    assert found.identified.tolist() == [all(names[y] == y for names in distinct) for y in range(task.classes)]


def test_the_published_tasks_have_the_shortcuts_that_their_formulas_allow() -> None:
    # rsbench's page lists the two of MNAdd-Half
    assert Shortcuts.of(candidates_of(HALF), torch.tensor(HALF.seen)).maps == 2
    assert Shortcuts.of(candidates_of(EVEN_ODD), torch.tensor(EVEN_ODD.seen)).maps == 35
    assert len(HALF.seen) + len(HALF.unseen) == 25


def one_hot_images(classes: int) -> torch.Tensor:
    return torch.eye(classes).log()


def quality(task: ShortcutTask, concepts: torch.Tensor) -> ConceptQuality:
    """Of held-out samples with these concepts, whose inputs are one-hot."""
    found = Shortcuts.of(candidates_of(task), torch.tensor(task.seen))
    return ConceptQuality(
        one_hot_images(task.classes), torch.arange(task.classes), concepts, None, Outputs.of(task), found
    )


class Renamed(nn.Module):
    """Reads every digit as what a map calls it."""

    def __init__(self, names: list[int]) -> None:
        super().__init__()
        self.names = torch.tensor(names)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.eye(len(self.names)).log()[self.names[inputs.argmax(1)]]


def test_a_shortcut_has_all_labels_right_and_its_concepts_wrong() -> None:
    scores = quality(HALF, torch.tensor(HALF.seen))(Renamed([0, 1, 3, 2, 3]))
    assert scores["labels"] == 1
    assert scores["accuracy"] == pytest.approx(6 / 14)  # zeros and ones
    assert scores["ece"] == pytest.approx(8 / 14)  # and it is sure of all
    assert "joint" not in scores  # it claims nothing


def test_a_mixture_has_its_labels_right_under_each_naming_and_its_concepts_in_half() -> None:
    swapped = [5, 6, 7, 8, 9, 0, 1, 2, 3, 4]
    pool = NamedPool(
        candidates_of(EVEN_ODD), torch.tensor([list(range(10)), swapped]), torch.zeros(10).bool(), "ambiguous"
    )
    for learned in (range(10), swapped):  # whichever it learned
        scores = quality(EVEN_ODD, torch.tensor(EVEN_ODD.seen))(NamingMixture(Renamed(list(learned)), pool))
        assert scores["labels"] == 1
        assert scores["accuracy"] == pytest.approx(0.5)
        assert scores["ece"] == pytest.approx(0, abs=1e-6)
        assert scores["joint"] == 0


def test_of_equally_probable_predictions_the_right_one_counts_as_its_share() -> None:
    sure, right = judge(torch.tensor([[0.4, 0.4, 0.2], [0.4, 0.4, 0.2]]), torch.tensor([0, 2]))
    assert right.tolist() == [0.5, 0]
    assert sure.tolist() == pytest.approx([0.4, 0.4])


def test_calibration_error_is_that_of_ten_equal_bins() -> None:
    generator = torch.Generator().manual_seed(0)
    sure, right = torch.rand(500, generator=generator), (torch.rand(500, generator=generator) < 0.5).float()
    expected = 0.0
    for low in range(10):
        inside = (sure > low / 10) & (sure <= (low + 1) / 10)
        if inside.any():
            expected += float(inside.float().mean() * (sure[inside].mean() - right[inside].mean()).abs())
    assert calibration_error(sure, right) == pytest.approx(expected, abs=1e-6)


def test_one_pattern_is_as_probable_as_all_combinations_say() -> None:
    same = kandinsky.SamePattern.of_pictures()
    labels = kandinsky.draw_labels(6, seed=1)
    for row, value in zip(labels.tolist(), same.value(labels).tolist(), strict=True):
        pictures = [row[6 * i : 6 * i + 6] for i in range(3)]
        assert value == (len({(len(set(p[:3])), len(set(p[3:]))) for p in pictures}) == 1)
    noisy = torch.rand(1, 18, 6, generator=torch.Generator().manual_seed(0))
    kind = torch.tensor(([0] * 3 + [1] * 3) * 3)
    noisy[0][kind == 0, 3:] = noisy[0][kind == 1, :3] = 0
    noisy = noisy / noisy.sum(2, keepdim=True)
    for target, one in enumerate(map(kandinsky.pattern_candidates, ([0], [1]))):
        expected = float(one.log_probability(noisy.log()).exp())
        assert same.probability(noisy)[0, target] == pytest.approx(expected, rel=1e-4)


def test_samples_of_another_size_are_refused() -> None:
    with pytest.raises(InputError, match="expected 2 slots, as mnist-half has, got 3; pass --slots 2"):
        benchmark_named("mnist-half")(RunConfig(rule="mnist-half"))


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "slots", "identified"), [("mnist-half", 2, True), ("mnlogic", 4, False)])
def test_a_quick_run_learns_labels_and_knows_what_it_cannot_know(rule: str, slots: int, identified: bool) -> None:
    config = RunConfig(rule=rule, slots=slots, samples=150, epochs=15, objective="mixture", encoder="auto")
    scores = run(config).last.scores
    assert scores["labels"] > 0.9
    assert scores["ece"] < 0.15  # a shortcut has half
    assert scores["joint"] == identified


def test_numbers_of_maps_are_no_percentages() -> None:
    table = TABLES["shortcuts"]
    place = next(table.places())
    metrics = EpochMetrics(1, 0.1, 0.5, 1.0, None, 0.1, 0.0, {"labels": 0.98, "shortcuts": 35.0})
    entry = CellResult(place, (Record(place.config.as_dict(), [metrics]),))
    assert (entry.values("labels"), entry.values("shortcuts")) == ([98.0], [35.0])


def test_the_table_has_a_quick_form_without_files_and_the_published_figures() -> None:
    table = TABLES["shortcuts"]
    quick = Selection(quick=True).of(table)
    assert {column.base.data for column in quick.columns} == {"digits", "primitives"}
    assert table.published["NeSyDM", "MNIST-Even-Odd"] == {"accuracy": (20.3, 0), "ece": (2.7, 0)}
