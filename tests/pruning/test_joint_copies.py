"""Samples that occur several times are no evidence for each other, and known labels are never given up."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clipper import Candidates, ProximityGraph, infer
from tests.pruning.pools import clustered, model_of, repeated_noise


@given(st.data())
def test_copies_are_samples_with_the_same_inputs_in_any_order(data: st.DataObject) -> None:
    n, m = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 3))
    inputs = [data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=m)) for _ in range(n)]
    width = max(map(len, inputs))
    at = [(width * i + j, i, value) for i, row in enumerate(inputs) for j, value in enumerate(row)]
    near = [(a, b, 1.7 * abs(x - y)) for a, i, x in at for b, j, y in at if i < j]
    candidates = Candidates.from_rule(sum, [0] * n, [len(row) for row in inputs], 3)
    ends = [list(column) for column in zip(*near, strict=True)] or [[], []]
    pool = model_of(candidates, ProximityGraph.from_edges(*ends))
    keys = [sorted(row) for row in inputs]
    if not any(distance for _, _, distance in near):  # nothing tells that inputs are the same
        keys = [[i] for i in range(n)]
    assert pool.first_copy.tolist() == [keys.index(key) for key in keys]


@pytest.mark.parametrize("seed", [1, 12, 13, 14])
@pytest.mark.parametrize("swapped", [False, True])
def test_noise_stays_noise_if_every_sample_occurs_twice(seed: int, swapped: bool) -> None:
    candidates, noise, gold = repeated_noise(seed, times=2)
    if swapped:
        noise[30:] = noise[30:].flip(1)
    posterior = infer(candidates, noise)
    assert posterior.verdict not in ("joint", "ambiguous")
    assert posterior.prune().gold_retained(gold) == 1


def test_a_pool_that_is_identified_stays_so_if_every_sample_occurs_twice() -> None:
    candidates, embeddings, gold = clustered(60, classes=5, spread=0.3)
    twice = infer(candidates.batch(list(range(60)) * 2), embeddings.repeat(2, 1, 1))
    assert twice.verdict == "joint"
    assert torch.equal(twice.labels, gold.repeat(2, 1))


@pytest.mark.parametrize("known", [0, 60, 110, 119, 120])
def test_the_more_labels_are_known_the_fewer_candidates_are_left(known: int) -> None:
    candidates, embeddings, gold = clustered(60, slots=2, classes=3, spread=0.3)
    given_labels = torch.full((120,), -1)
    some = torch.randperm(120, generator=torch.Generator().manual_seed(0))[:known]
    given_labels[some] = gold.flatten()[some]
    posterior = infer(candidates, embeddings, known=given_labels.view(60, 2))
    assert posterior.verdict == "joint"
    assert posterior.prune().candidates.counts == [1] * 60
    assert torch.equal(posterior.labels, gold)
