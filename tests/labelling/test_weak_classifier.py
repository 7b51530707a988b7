"""WeakClassifier against gold labels, plain Python, and what scikit-learn expects of an estimator."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import clipper
from clipper import rules
from clipper.benchmarks.data.images import digits
from clipper.errors import InputError

pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra sklearn)")
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold

from clipper import WeakClassifier

CLASSES = 3


def clusters(gold: Tensor, noise: float = 0.15, seed: int = 0) -> Tensor:
    """A vector for each label, near others of that label."""
    generator = torch.Generator().manual_seed(seed)
    return torch.eye(4)[gold] + noise * torch.randn(*gold.shape, 4, generator=generator)


@pytest.fixture(scope="module")
def pool() -> tuple[Tensor, Tensor]:
    """Vectors `(60, 2, 4)`, and the labels `(60, 2)` that nobody knows."""
    gold = torch.randint(CLASSES, (60, 2), generator=torch.Generator().manual_seed(1))
    return clusters(gold), gold


@pytest.fixture(scope="module")
def fitted(pool: tuple[Tensor, Tensor]) -> Any:
    X, gold = pool
    return WeakClassifier("sum", CLASSES, random_state=0).fit(X, gold.sum(1))


def test_single_instances_are_classified_by_what_sums_tell(fitted: Any, pool: tuple[Tensor, Tensor]) -> None:
    X, gold = pool
    unseen = torch.randint(CLASSES, (200,))
    assert fitted.verdict_ == "joint"
    assert fitted.expected_accuracy_ > 0.9
    assert (fitted.posterior_.labels == gold).double().mean() > 0.95
    assert (fitted.predict(clusters(unseen, seed=2)) == unseen.numpy()).mean() > 0.95
    assert fitted.classes_.tolist() == [0, 1, 2]
    assert fitted.predict(X.flatten(0, 1)).shape == (120,)


def test_probabilities_are_those_of_the_network_and_sum_to_one(fitted: Any, pool: tuple[Tensor, Tensor]) -> None:
    instances = pool[0].flatten(0, 1)
    probability = fitted.predict_proba(instances)
    with torch.no_grad():
        assert np.allclose(probability, fitted.network_(instances).exp().numpy(), atol=1e-6)
    assert np.allclose(probability.sum(1), 1, atol=1e-5)
    assert (probability.argmax(1) == fitted.predict(instances)).all()


def test_the_score_is_the_share_of_targets_that_predicted_labels_meet(fitted: Any) -> None:
    gold = torch.randint(CLASSES, (40, 2), generator=torch.Generator().manual_seed(3))
    X, targets = clusters(gold, noise=0.6, seed=4), gold.sum(1)
    labels = fitted.predict(X.flatten(0, 1)).reshape(40, 2)
    met = [sum(row) == target for row, target in zip(labels.tolist(), targets.tolist(), strict=True)]
    assert 0 < sum(met) < 40
    assert fitted.score(X, targets) == pytest.approx(sum(met) / 40)
    assert fitted.score(X[:1], [99]) == 0, "a target that nothing satisfies is not met"


@pytest.mark.parametrize("rule", ["sum", rules.total(), sum, lambda labels: labels[0] + labels[1]])
def test_a_rule_is_a_name_a_rule_or_any_callable(rule: Any, fitted: Any, pool: tuple[Tensor, Tensor]) -> None:
    X, gold = pool
    other = WeakClassifier(rule, CLASSES, epochs=1, random_state=0).fit(X.numpy(), gold.sum(1).tolist())
    assert torch.equal(other.posterior_.labels, fitted.posterior_.labels)
    assert 0 <= other.score(X, gold.sum(1)) <= 1


def test_images_have_outlines_and_a_convolutional_network_by_default() -> None:
    data = digits()
    few = (data.labels < 4).nonzero()[:, 0]
    rows = few[:120].view(60, 2)
    X = (255 * data.pixels[rows]).byte()  # (n, m, channels, height, width)
    model = WeakClassifier("sum", 4, epochs=25, random_state=0).fit(X, data.labels[rows].sum(1))
    unseen = few[200:400]
    assert model.verdict_ == "joint"
    assert (model.predict((255 * data.pixels[unseen]).byte()) == data.labels[unseen].numpy()).mean() > 0.9


def test_samples_of_different_lengths_come_as_a_list() -> None:
    generator = torch.Generator().manual_seed(5)
    lengths = [1 + i % 3 for i in range(60)]
    gold = [torch.randint(CLASSES, (length,), generator=generator) for length in lengths]
    X = [clusters(labels, seed=i).numpy() for i, labels in enumerate(gold)]
    targets = [int(labels.sum()) for labels in gold]
    model = WeakClassifier("sum", CLASSES, random_state=0).fit(X, targets)
    assert (model.predict(np.concatenate(X)) == torch.cat(gold).numpy()).mean() > 0.95
    assert model.score(X, targets) > 0.95
    assert model.posterior_.labels.shape == (60, 3)
    as_objects = np.empty(60, dtype=object)
    as_objects[:] = X
    assert model.score(as_objects, targets) == model.score(X, targets)


def test_parameters_are_kept_as_given_and_can_be_set() -> None:
    network, encoder = nn.Linear(4, 3), clipper.proximity.Pixels()
    model = WeakClassifier(sum, CLASSES, network, encoder=encoder, mass=0.9)
    parameters = model.get_params()
    assert parameters["rule"] is sum
    assert parameters["network"] is network
    assert parameters["encoder"] is encoder
    assert model.set_params(mass=0.5, epochs=3).get_params() == parameters | {"mass": 0.5, "epochs": 3}
    WeakClassifier(rule=object(), classes="ten", mass=-1)  # nothing is looked at before fit
    assert is_classifier(model)


def test_a_clone_has_the_parameters_and_nothing_that_was_learned(fitted: Any) -> None:
    twin = clone(fitted)
    assert twin.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        twin.predict(torch.zeros(1, 4))
    with pytest.raises(NotFittedError):
        twin.score(torch.zeros(1, 2, 4), [1])
    assert "WeakClassifier" in repr(clone(WeakClassifier(rules.luhn(), 10, nn.Linear(2, 10))))


def test_a_pickle_predicts_the_same_and_remembers_the_posterior(fitted: Any, pool: tuple[Tensor, Tensor]) -> None:
    again = pickle.loads(pickle.dumps(fitted))
    instances = pool[0].flatten(0, 1)
    assert (again.predict_proba(instances) == fitted.predict_proba(instances)).all()
    assert torch.equal(again.posterior_.marginals, fitted.posterior_.marginals)
    assert again.posterior_.verdict == again.verdict_ == "joint"
    assert again.score(pool[0], pool[1].sum(1)) == fitted.score(pool[0], pool[1].sum(1))


@pytest.mark.parametrize("form", [Tensor.numpy, Tensor.clone, lambda X: [part.numpy() for part in X]])
def test_grid_search_chooses_parameters(form: Callable[[Tensor], Any], pool: tuple[Tensor, Tensor]) -> None:
    X, gold = pool
    model = WeakClassifier("sum", CLASSES, random_state=0)
    search = GridSearchCV(model, {"epochs": [1, 60]}, cv=KFold(2), error_score="raise")
    search.fit(form(X), gold.sum(1).numpy())
    assert search.best_params_ == {"epochs": 60}
    assert search.best_score_ > 0.9
    assert search.predict(X.flatten(0, 1).numpy()).shape == (120,)


def test_a_random_state_settles_everything_and_leaves_the_callers_generator_alone(pool: tuple[Tensor, Tensor]) -> None:
    X, gold = pool
    before = torch.get_rng_state()
    first, second, third = (
        WeakClassifier("sum", CLASSES, epochs=2, random_state=state).fit(X, gold.sum(1)).predict_proba(X[:, 0])
        for state in (3, np.random.RandomState(3), 4)
    )
    assert (first == second).all()
    assert (first != third).any()
    assert torch.equal(before, torch.get_rng_state())


class WithEmbedding(nn.Module):
    """Raw scores, and what they were computed from."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, CLASSES)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        return 10 * self.layer(inputs), inputs


@pytest.mark.parametrize(
    "network", [nn.Linear(4, CLASSES), nn.Sequential(nn.Linear(4, CLASSES), nn.LogSoftmax(-1)), WithEmbedding()]
)
def test_a_network_may_give_scores_or_log_probabilities_and_its_copy_is_trained(
    network: nn.Module, pool: tuple[Tensor, Tensor]
) -> None:
    X, gold = pool
    before = [weight.clone() for weight in network.parameters()]
    model = WeakClassifier("sum", CLASSES, network, learning_rate=0.03, random_state=0).fit(X, gold.sum(1))
    assert (model.predict(X.flatten(0, 1)) == gold.flatten().numpy()).mean() > 0.9
    assert all(torch.equal(a, b) for a, b in zip(before, network.parameters(), strict=True))


def test_an_encoder_decides_what_is_near(pool: tuple[Tensor, Tensor]) -> None:
    X, gold = pool
    disguised = torch.cat([X, 100 * torch.rand(60, 2, 3, generator=torch.Generator().manual_seed(0))], 2)
    model = WeakClassifier("sum", CLASSES, encoder=lambda instances: instances[:, :4], random_state=0)
    model.fit(disguised, gold.sum(1))
    assert model.verdict_ == "joint"
    assert (model.posterior_.labels == gold).double().mean() > 0.95


def test_where_inference_abstains_all_candidates_are_learned_from_and_one_warning_says_so() -> None:
    generator = torch.Generator().manual_seed(0)
    X, targets = torch.randn(40, 2, 4, generator=generator), torch.randint(5, (40,), generator=generator)
    model = WeakClassifier("sum", CLASSES, epochs=2, random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, targets)
    assert model.verdict_ in ("unsettled", "uninformative")
    assert [str(one.message).startswith(f"{model.verdict_}: ") for one in caught] == [True]
    assert caught[0].filename == __file__
    assert "all candidates" in str(caught[0].message)
    assert model.history_[-1].retained == 1
    assert model.posterior_.prune().candidates.counts == model.posterior_.candidates.counts
    assert model.predict(X[:, 0]).shape == (40,)


def test_known_labels_settle_names_that_formulas_leave_open() -> None:
    gold = torch.randint(2, (40, 2), generator=torch.Generator().manual_seed(2))
    X, differ = clusters(gold), (gold[:, 0] != gold[:, 1]).tolist()
    model = WeakClassifier(rules.all_different(), 2, random_state=0)
    with pytest.warns(UserWarning, match=r"ambiguous.*posterior_\.ask"):
        model.fit(X, differ)
    asked = int(model.posterior_.ask(1))
    known = torch.full((40, 2), -1)
    known.view(-1)[asked] = gold.view(-1)[asked]
    model.fit(X, differ, known=known)
    assert model.verdict_ == "joint"
    assert (model.predict(X.flatten(0, 1)) == gold.flatten().numpy()).mean() > 0.95


def test_known_labels_are_learned_from_although_inference_abstains() -> None:
    generator = torch.Generator().manual_seed(0)
    gold = torch.randint(2, (40, 1), generator=generator)
    X = torch.randn(40, 1, 30, generator=generator)
    model = WeakClassifier(rules.partial_labels(), 2, epochs=200, learning_rate=0.1, random_state=0)
    known = gold.clone()
    known[0] = -1
    with pytest.warns(UserWarning, match="all candidates"):
        model.fit(X, [{0, 1}] * 40, known=known)
    assert (model.predict(X[:, 0]) == gold[:, 0].numpy()).mean() > 0.9
    model.fit(X, [{0, 1}] * 40, known=gold)  # nothing is left to infer
    assert model.verdict_ == "joint"


def test_impossible_targets_are_refused_or_kept_and_not_learned_from(pool: tuple[Tensor, Tensor]) -> None:
    X, gold = pool
    targets = gold.sum(1).clone()
    targets[7] = 99
    with pytest.raises(InputError, match="sample 7"):
        WeakClassifier("sum", CLASSES).fit(X, targets)
    model = WeakClassifier("sum", CLASSES, impossible="keep", epochs=60, random_state=0).fit(X, targets)
    assert model.posterior_.suspicion[7] == 1
    assert (model.predict(X.flatten(0, 1)) == gold.flatten().numpy()).mean() > 0.95


@pytest.mark.parametrize(
    ("options", "X", "targets", "words"),
    [
        ({}, torch.zeros(4, 3), [1, 1, 1, 1], r"X\[:, None\]"),
        ({}, torch.zeros(4, 2, 8, 8), [1, 1, 1, 1], r"X\[:, :, None\]"),
        ({}, torch.zeros(4, 2, 3), [1, 1, 1], "a target for each of 4 samples, got 3"),
        ({}, [], [], "a list of samples"),
        ({}, [torch.zeros(2, 3), torch.zeros(0, 3)], [1, 1], "at least one instance"),
        ({}, [torch.zeros(2, 3), torch.zeros(1, 4)], [1, 1], "one shape"),
        ({}, "images", [1], "X as a tensor"),
        ({"mass": 2}, torch.zeros(4, 2, 3), [1] * 4, "mass"),
        ({"epochs": 0}, torch.zeros(4, 2, 3), [1] * 4, "epochs"),
        ({"batch": 0}, torch.zeros(4, 2, 3), [1] * 4, "batch"),
        ({"learning_rate": 0}, torch.zeros(4, 2, 3), [1] * 4, "learning_rate"),
        ({"weight_decay": -1}, torch.zeros(4, 2, 3), [1] * 4, "weight_decay"),
        ({"classes": 1}, torch.zeros(4, 2, 3), [0] * 4, "classes"),
        ({"rule": "summe"}, torch.zeros(4, 2, 3), [1] * 4, "the name of a rule"),
        ({"encoder": "outlines"}, torch.zeros(4, 2, 3), [1] * 4, r"Outlines\(\)"),
        ({"impossible": "keep"}, torch.zeros(4, 2, 3), [99] * 4, "no labels satisfy any of 4 formulas"),
        ({"network": "cnn"}, torch.zeros(4, 2, 3), [1] * 4, "torch.nn.Module"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(options: dict[str, Any], X: Any, targets: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        WeakClassifier(**{"rule": "sum", "classes": 3} | options).fit(X, targets)


def test_known_labels_and_instances_of_another_shape_are_refused(fitted: Any, pool: tuple[Tensor, Tensor]) -> None:
    X, gold = pool
    with pytest.raises(InputError, match=r"shape \(60, 2\)"):
        clone(fitted).fit(X, gold.sum(1), known=[[0, 1, 2]] * 60)
    with pytest.raises(InputError, match=r"X\.reshape\(-1, 4\)"):
        fitted.predict(X)


def test_instances_that_are_not_numbers_have_no_probabilities(fitted: Any, pool: tuple[Tensor, Tensor]) -> None:
    X = pool[0].flatten(0, 1).clone()
    X[3, 1] = torch.nan
    for ask in (fitted.predict, fitted.predict_proba):
        with pytest.raises(InputError, match="got NaN for instance 3; remove NaN and infinity"):
            ask(X)


def test_only_the_classifier_needs_scikit_learn() -> None:
    code = (
        "import sys; sys.modules['sklearn'] = sys.modules['sklearn.base'] = None\n"
        "import clipper, clipper.labelling; clipper.decode\n"
        "try: clipper.WeakClassifier\n"
        "except clipper.errors.MissingExtraError as error: print('clipper-nesy[sklearn]' in str(error))\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "True"
