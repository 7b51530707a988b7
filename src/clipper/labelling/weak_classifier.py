"""WeakClassifier: an estimator with scikit-learn's interface that learns from facts about samples instead of labels.

This is the only module that needs scikit-learn (extra `sklearn`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from clipper.arguments import as_list, as_tensor, real_number, shown, whole_number, whole_numbers
from clipper.candidates import Candidates, CandidateSet
from clipper.candidates.base import Impossible, check_any_possible
from clipper.candidates.rules import Rule
from clipper.engines import SemanticLoss
from clipper.errors import InputError, require
from clipper.proximity import Encoder, Outlines, Pixels, embed
from clipper.pruning import Posterior, infer
from clipper.rules import named
from clipper.training import Samples, train
from clipper.training.adapters import predict
from clipper.training.loop import check_parts
from clipper.training.samples import pad_slots, stacked

_BASE: Any = require("sklearn.base", extra="sklearn")
_VALIDATION: Any = require("sklearn.utils.validation", extra="sklearn")

_DOUBTS = {
    "ambiguous": (
        "the targets allow several ways to name the labels, and the network learned one of them; "
        "label the instances that posterior_.ask(k) returns, and pass these labels to fit as known="
    ),
    "unsettled": (
        "joint inference found no labels to rely on, so the network was trained on all candidates; "
        "more samples, known labels or another encoder= may help"
    ),
    "uninformative": (
        "similar instances say nothing about the targets, so the network was trained on all candidates; "
        "pass an encoder= that gives instances of one class similar vectors"
    ),
}
"""What a verdict other than "joint" means for the caller of `fit`."""


class WeakClassifier(_BASE.ClassifierMixin, _BASE.BaseEstimator):  # type: ignore[misc]
    """A scikit-learn classifier of single instances that learns from a fact about each sample.

    `fit` infers the labels of all samples together (`clipper.infer`), discards improbable candidates, and trains a
    network on the remaining ones (semantic loss). If the verdict of the inference is "unsettled" or "uninformative",
    `fit` discards nothing and warns.

    Args:
        rule: what you know about a sample: one of `clipper.rules`, its name such as "sum" or "checksum:3,1,7,9", or any
            function of a tuple of labels.
        classes: the number of different labels; labels are 0 … classes - 1.
        network: maps instances `(N, *shape)` to scores `(N, classes)`, log-probabilities or not. A copy is trained. By
            default a linear layer for vectors, and a small convolutional network for images.
        encoder: maps instances `(N, *shape)` to vectors `(N, d)`, which should be close for instances of one class. By
            default vectors are used as they are, and images are encoded by `Outlines`.
        mass: the probability that the remaining candidates of a sample hold together.
        wrong: the share of wrong targets; estimated if None.
        impossible: "refuse" targets that no labels satisfy, or "keep" their samples, which training then ignores.
        epochs: passes over the samples.
        batch: samples per step.
        learning_rate: of AdamW; if None, 0.01 for the linear layer and 0.001 for every other network.
        weight_decay: of AdamW.
        random_state: a seed, a NumPy `RandomState`, or None for a different result each time.

    Attributes:
        classes_: `(classes,)`: the labels.
        network_: the trained network; maps instances to log-probabilities.
        posterior_: the `Posterior` of the training samples: `labels`, `marginals`, `suspicion`, `ask` …
        verdict_: its verdict: "joint", "ambiguous", "unsettled" or "uninformative".
        expected_accuracy_: the expected share of right labels among `posterior_.labels`.
        history_: the metrics of every epoch.
        shape_: the shape of an instance.

    Examples:
        >>> generator = torch.Generator().manual_seed(0)
        >>> gold = torch.randint(3, (60, 2), generator=generator)  # unknown in practice
        >>> X = torch.eye(3)[gold] + torch.randn(60, 2, 3, generator=generator) / 10  # (n, m, d)
        >>> model = WeakClassifier("sum", classes=3, random_state=0).fit(X, targets=gold.sum(1))
        >>> model.verdict_, model.predict(torch.eye(3)).tolist(), model.score(X, gold.sum(1))
        ('joint', [0, 1, 2], 1.0)
    """

    def __init__(
        self,
        rule: Rule | str | Callable[..., Any],
        classes: int,
        network: nn.Module | None = None,
        *,
        encoder: Encoder | None = None,
        mass: float = 0.95,
        wrong: float | None = None,
        impossible: Impossible = "refuse",
        epochs: int = 100,
        batch: int = 64,
        learning_rate: float | None = None,
        weight_decay: float = 0.01,
        random_state: Any = None,
    ) -> None:
        self.rule = rule
        self.classes = classes
        self.network = network
        self.encoder = encoder
        self.mass = mass
        self.wrong = wrong
        self.impossible = impossible
        self.epochs = epochs
        self.batch = batch
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.random_state = random_state

    def fit(self, X: Any, targets: Any, known: Any = None) -> Self:
        """Infer the labels of all samples, then train the network on the candidates that are left.

        Args:
            X: `(n, m, *shape)`: vectors `(n, m, d)`, images `(n, m, channels, height, width)` or any other input of
                `encoder` and `network`; a list of `(length, *shape)` for samples of different lengths. Bytes are
                divided by 255.
            targets: the target of each of the `n` samples, as the rule takes it.
            known: labels that you know, `(n, m)`, -1 elsewhere.

        Returns:
            The classifier itself.

        Raises:
            InputError: the arguments do not fit together, or no labels satisfy a target.
            BudgetError: there are too many label combinations to try.
        """
        inputs, lengths = _samples(X)
        self._check(inputs)
        candidates = self._candidates(targets, lengths, self.impossible).to(inputs.device)
        check_any_possible(candidates)
        known_labels = None if known is None else _known_labels(known, candidates)
        seed = int(_VALIDATION.check_random_state(self.random_state).randint(2**31))
        embeddings: Any = embed(self._encoder(inputs), inputs)  # (n, m, d)
        posterior = infer(candidates, embeddings, known=known_labels, wrong=self.wrong, seed=seed)
        kept = _with_known(posterior.prune(self.mass).candidates, known_labels)
        usable = (kept.possible() & (posterior.suspicion <= 1 / 2)).nonzero()[:, 0]
        if not len(usable):
            raise InputError(
                "expected samples to learn from, got none whose target is probably right; check that rule, targets and "
                "classes belong together"
            )
        network = self._network(inputs[candidates.kind >= 0], seed)
        rate = self.learning_rate or (1e-2 if self.network is None and inputs.ndim == 3 else 1e-3)
        optimiser = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=self.weight_decay)
        self.history_ = train(
            network, Samples(inputs[usable], kept.batch(usable)), SemanticLoss(),
            optimiser=optimiser, epochs=self.epochs, batch=self.batch, seed=seed,
        )  # fmt: skip
        self.network_ = network.eval()
        self.posterior_: Posterior[CandidateSet] = posterior
        self.verdict_ = posterior.verdict
        self.expected_accuracy_ = posterior.expected_accuracy
        self.classes_ = np.arange(self.classes)
        self.shape_ = tuple(inputs.shape[2:])
        if self.verdict_ in _DOUBTS:
            warnings.warn(f"{self.verdict_}: {_DOUBTS[self.verdict_]}", stacklevel=2)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The most probable label of each instance.

        Args:
            X: instances `(N, *shape)`.

        Returns:
            `(N,)` labels.

        Raises:
            InputError: the instances have another shape than those in `fit`, or the network gives NaN for them.
            sklearn.exceptions.NotFittedError: `fit` has not been called.
        """
        probability = self.predict_proba(X)
        labels: np.ndarray = self.classes_[probability.argmax(1)]
        return labels

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each label of each instance.

        Args:
            X: instances `(N, *shape)`.

        Returns:
            `(N, classes)`; rows sum to one.

        Raises:
            InputError: the instances have another shape than those in `fit`, or the network gives NaN for them.
            sklearn.exceptions.NotFittedError: `fit` has not been called.
        """
        _VALIDATION.check_is_fitted(self)
        instances = _floats(X)
        if tuple(instances.shape[1:]) != self.shape_:
            shape = ", ".join(map(str, self.shape_))
            raise InputError(
                f"expected instances of shape (N, {shape}), got {tuple(instances.shape)}; those of samples "
                f"(n, m, {shape}) are X.reshape(-1, {shape})"
            )
        home = next(self.network_.parameters()).device
        log_probs = predict(self.network_, instances.to(home).unsqueeze(1))[:, 0]  # (N, classes)
        if bool(log_probs.isnan().any()):
            first = int(log_probs.isnan().any(1).nonzero()[0])
            raise InputError(
                f"expected instances for which the network gives numbers, got NaN for instance {first}; remove NaN and "
                "infinity from X"
            )
        probability: np.ndarray = log_probs.exp().cpu().numpy()
        return probability

    def score(self, X: Any, targets: Any) -> float:
        """The share of samples whose predicted labels satisfy the target.

        Args:
            X: samples, as `fit` takes them.
            targets: the target of each sample.

        Returns:
            A number from 0 to 1.

        Raises:
            InputError: samples and targets do not fit together.
            sklearn.exceptions.NotFittedError: `fit` has not been called.
        """
        _VALIDATION.check_is_fitted(self)
        inputs, lengths = _samples(X)
        candidates = self._candidates(targets, lengths, "keep")
        used = candidates.kind >= 0
        labels = torch.full(used.shape, -1)
        labels[used] = torch.from_numpy(self.predict(inputs[used.to(inputs.device)]))
        return float(candidates.contains(labels).double().mean())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        return tags

    def _candidates(self, targets: Any, lengths: list[int], impossible: Impossible) -> CandidateSet:
        """The candidates of samples with these targets and lengths."""
        wanted = as_list(targets, "targets, one for each sample,")
        if len(wanted) != len(lengths):
            raise InputError(f"expected a target for each of {len(lengths)} samples, got {len(wanted)}")
        rule = named(self.rule) if isinstance(self.rule, str) else self.rule
        return Candidates.from_rule(rule, targets, lengths, self.classes, impossible=impossible)

    def _check(self, inputs: Tensor) -> None:
        """Check the arguments of training before inference, which may take minutes."""
        whole_number(self.classes, "classes", least=2)
        whole_number(self.epochs, "epochs")
        whole_number(self.batch, "batch")
        real_number(self.mass, "mass", above=0, most=1)
        real_number(self.weight_decay, "weight_decay", least=0)
        if self.learning_rate is not None:
            real_number(self.learning_rate, "learning_rate", above=0)
        if self.network is not None:
            check_parts(self.network, SemanticLoss())
        for name in ("encoder", "network"):
            if getattr(self, name) is None and inputs.ndim not in (3, 5):
                raise InputError(
                    f"expected vectors (n, m, d) or images (n, m, channels, height, width) where {name}= is not given, "
                    f"got {tuple(inputs.shape)}; grey images need a channel, X[:, :, None]"
                )

    def _encoder(self, inputs: Tensor) -> Encoder:
        if self.encoder is not None:
            return self.encoder
        return Outlines() if inputs.ndim == 5 else Pixels()

    def _network(self, instances: Tensor, seed: int) -> nn.Module:
        """The network to train, for instances `(N, *shape)`."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if self.network is not None:
                network = deepcopy(self.network)
            else:
                network = (_linear if instances.ndim == 2 else _convolutional)(instances, self.classes)
        return _LogProbabilities(network).to(instances.device)


class _LogProbabilities(nn.Module):
    """A network whose output is log-probabilities: `log_softmax` of its scores, without its embedding if it has one."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor) -> Tensor:
        output = self.network(inputs)
        scores: Tensor = output if isinstance(output, Tensor) else output[0]
        return scores.log_softmax(-1)


class _Standardised(nn.Module):
    """Scale inputs to mean 0 and deviation 1 in each feature or channel, measured on instances `(N, *shape)`."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, instances: Tensor) -> None:
        super().__init__()
        rest = [0, *range(2, instances.ndim)]
        deviation, mean = torch.std_mean(instances, rest, correction=0, keepdim=True)
        self.register_buffer("mean", mean[0])
        self.register_buffer("deviation", torch.where(deviation > 0, deviation, 1)[0])

    def forward(self, inputs: Tensor) -> Tensor:
        return (inputs - self.mean) / self.deviation


def _linear(instances: Tensor, classes: int) -> nn.Module:
    return nn.Sequential(_Standardised(instances), nn.Linear(instances.shape[1], classes))


def _convolutional(instances: Tensor, classes: int) -> nn.Module:
    """Two convolutions and two linear layers, for images of any size."""
    return nn.Sequential(
        _Standardised(instances),
        nn.Conv2d(instances.shape[1], 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(4),
        nn.Flatten(),  # (N, 64 * 4 * 4)
        nn.Linear(1024, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, classes),
    )


def _floats(values: Any) -> Tensor:
    """A tensor of single precision; bytes, as in images, are divided by 255."""
    tensor = as_tensor(values, "X")
    return tensor.float() / 255 if tensor.dtype == torch.uint8 else tensor.float()


def _samples(values: Any) -> tuple[Tensor, list[int]]:
    """Inputs `(n, m, *shape)`, unused slots filled with zeros, and the number of each sample's slots."""
    if isinstance(values, np.ndarray) and values.dtype == object:
        values = list(values)
    if isinstance(values, list | tuple):
        parts = [_floats(part) for part in values]
        if not parts or min(part.ndim for part in parts) < 2 or not all(map(len, parts)):
            raise InputError(
                f"expected X as a list of samples (length, *shape) of at least one instance, got {shown(values)}"
            )
        lengths = [len(part) for part in parts]
        return stacked([pad_slots(part, max(lengths)) for part in parts]), lengths
    inputs = _floats(values)
    if inputs.ndim < 3 or 0 in inputs.shape:
        raise InputError(
            f"expected X of shape (n, m, *shape), m instances for each of n samples, got {tuple(inputs.shape)}; "
            "samples of a single instance are X[:, None], samples of different lengths a list of (length, *shape)"
        )
    return inputs, [inputs.shape[1]] * len(inputs)


def _known_labels(known: Any, candidates: CandidateSet) -> Tensor:
    """Labels `(n, m)`, -1 where unknown, from rows that may be shorter than `m`."""
    rows = [whole_numbers(row, "known labels") for row in as_list(known, "known labels, a row for each sample,")]
    if len(rows) != candidates.samples or any(row.ndim != 1 or len(row) > candidates.slots for row in rows):
        raise InputError(
            f"expected known labels of shape ({candidates.samples}, {candidates.slots}), -1 where unknown, "
            f"got {shown(known)}"
        )
    labels = torch.full((candidates.samples, candidates.slots), -1)
    for i, row in enumerate(rows):
        labels[i, : len(row)] = row
    return labels.to(candidates.device)


def _with_known(candidates: CandidateSet, known: Tensor | None) -> CandidateSet:
    """The candidates that contain the known labels; a sample may have none left."""
    if known is None:
        return candidates
    labels = known.flatten()
    allowed = torch.ones_like(candidates.support)
    given = labels >= 0
    allowed[given] = nn.functional.one_hot(labels[given], candidates.classes).bool()
    return candidates.narrowed(allowed)
