"""Lattices that read labels which no slot shows, against the same lattice restricted to these labels."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clipper import Candidates, Clipper, Lattice, prune, rules
from clipper.candidates.rules import SUM
from clipper.engines import SemanticLoss
from clipper.errors import InputError
from tests.machines import Row, Task, log_probs_for, tasks


@st.composite
def observed_tasks(draw: st.DrawFn) -> tuple[Lattice, Candidates]:
    """A lattice of which some steps are observed, the others read in any order; and its candidates, by brute force."""
    steps = draw(st.integers(2, 4))
    task: Task = draw(tasks(length=steps))
    seen = draw(st.lists(st.integers(0, steps - 1), min_size=1, max_size=steps - 1, unique=True))
    read_at = draw(st.permutations([step for step in range(steps) if step not in seen]))
    known = [draw(st.sampled_from(task.rows(i))) for i in range(len(task.targets))]  # so that something is left
    observed = [[label if step in seen else -1 for step, label in enumerate(row)] for row in known]
    lattice = Lattice.from_rule(
        *task.machine, task.targets, steps, task.classes, domains=task.domains, observed=observed, read_at=read_at
    )

    def left(sample: int, row: Row) -> bool:
        return all(row[step] == known[sample][step] for step in seen)

    rows = [
        sorted(tuple(row[step] for step in read_at) for row in task.rows(i) if left(i, row)) for i in range(len(known))
    ]
    return lattice, Candidates.from_lists(rows, task.classes)


@given(observed_tasks(), st.integers(0, 99))
def test_what_is_observed_is_no_slot_and_everything_else_is_brute_force(pair: tuple[Lattice, Candidates], seed: int):
    lattice, expected = pair
    assert (lattice.samples, lattice.slots) == (expected.samples, expected.slots)
    assert lattice.counts == expected.counts
    assert torch.equal(lattice.support, expected.support)
    assert torch.equal(lattice.kind, expected.kind)
    assert torch.equal(lattice.lengths, expected.lengths)
    assert torch.equal(lattice.to_candidates().labels, expected.labels)
    assert bool(lattice.possible().all())
    log_probs = log_probs_for(expected, seed)
    torch.testing.assert_close(lattice.log_probability(log_probs), expected.log_probability(log_probs))
    torch.testing.assert_close(lattice.marginals(log_probs), expected.marginals(log_probs))
    torch.testing.assert_close(lattice.entropy(log_probs), expected.entropy(log_probs))
    best, same = lattice.top_k(log_probs, 2), expected.top_k(log_probs, 2)
    torch.testing.assert_close(best.log_probability(log_probs), same.log_probability(log_probs))
    gold = torch.randint(expected.classes, expected.first.shape, generator=torch.Generator().manual_seed(seed))
    for labels in (gold, expected.first):
        assert torch.equal(lattice.contains(labels), expected.contains(labels))


@given(observed_tasks(), st.integers(0, 99))
def test_draws_batches_and_restrictions_keep_to_what_is_observed(pair: tuple[Lattice, Candidates], seed: int) -> None:
    lattice, expected = pair
    for log_probs in (None, log_probs_for(expected, seed)):
        drawn = lattice.draw(3, seed, log_probs)
        assert bool(expected.batch(drawn.sample).contains(drawn.labels).all())
    assert lattice.draw(3, seed).counts == [min(count, 3) for count in expected.counts]
    allowed = lattice.draw(1, seed).support | (torch.rand(expected.support.shape) < 0.5)
    restricted, listed = lattice.restrict(allowed), expected.restrict(allowed)
    assert restricted.counts == listed.counts
    assert torch.equal(restricted.support, listed.support)
    ids = torch.arange(lattice.samples).flip(0)
    assert torch.equal(restricted.batch(ids).to_candidates().labels, listed.batch(ids).labels)
    assert torch.equal(restricted.to("cpu").contains(listed.first), torch.ones(lattice.samples, dtype=torch.bool))


def sums(observed: object = ((5, -1, -1), (2, -1, -1)), **options: object) -> Lattice:
    """Two images and a number that is known, and the sum of the three."""
    return Lattice.from_rule(*SUM, targets=[8, 16], slots=3, classes=10, observed=observed, **options)


def test_an_observed_lattice_is_pruned_and_learned_from() -> None:
    lattice = sums()
    assert lattice.counts == [4, 5]
    listed = lattice.to_candidates()
    embeddings = torch.rand(2, 2, 3, generator=torch.Generator().manual_seed(0))
    graph = Clipper(k=1).graph(lattice, embeddings)
    assert prune(lattice, graph).candidates.counts == prune(listed, graph).candidates.counts
    log_probs = log_probs_for(listed, 0)
    torch.testing.assert_close(SemanticLoss()(log_probs, lattice), SemanticLoss()(log_probs, listed))


@pytest.mark.parametrize("form", ["observed", "partial", "restricted"])
def test_outputs_that_are_not_given_by_their_target_are_refused_in_words_that_work(form: str) -> None:
    if form == "partial":
        lattice = rules.partial_labels().lattice([[{1, 2}, {0}], [{3}, {4, 5}]], 2, 10)
    elif form == "observed":
        lattice = sums()
    else:
        lattice = Lattice.from_rule(*SUM, [3, 4], 2, 10)
        lattice = lattice.restrict(lattice.draw(1, 0).support)
    listed, log_probs = lattice.to_candidates(), torch.randn(3, 2, 10).log_softmax(-1)
    with pytest.raises(InputError, match=r"restricted, partial or observed.*to_candidates\(\), pass k="):
        lattice.output_probabilities(log_probs)
    expected = listed.output_probabilities(log_probs)
    torch.testing.assert_close(lattice.output_probabilities(log_probs, k=100), expected)


def test_samples_that_differ_in_what_is_observed_differ_in_their_fingerprint() -> None:
    contents = [
        torch.cat([part.flatten() for part in lattice.contents])
        for lattice in (sums(), sums([[5, -1, -1], [3, -1, -1]]))
    ]
    assert not torch.equal(*contents)


@pytest.mark.parametrize(
    "observed",
    [
        [[5, -1, -1]],
        [[5, -1], [2, -1]],
        [[5, -1, -1], [-1, 2, -1]],
        [[5, 1, 2], [2, 1, 2]],
        [[10, -1, -1], [2, -1, -1]],
        [[-2, -1, -1], [-2, -1, -1]],
        [[5, -1, -1], [2, -7, -1]],
        [[0.5, -1, -1], [2, -1, -1]],
    ],
)
def test_observations_that_do_not_fit_are_refused(observed: object) -> None:
    with pytest.raises(InputError, match=r"observed"):
        sums(observed)


@pytest.mark.parametrize("read_at", [[0, 1], [1], [1, 1], [2, 3]])
def test_an_order_of_other_steps_is_refused(read_at: list[int]) -> None:
    with pytest.raises(InputError, match=r"order of the steps \[1, 2\]"):
        sums(read_at=read_at)


def test_an_observed_lattice_does_not_change_with_the_tensors_it_came_from() -> None:
    observed, read_at = torch.tensor([[5, -1, -1], [2, -1, -1]]), torch.tensor([2, 1])
    lattice, expected = sums(observed, read_at=read_at), sums().to_candidates()
    observed.fill_(9)
    read_at.fill_(0)
    assert torch.equal(lattice.to_candidates().labels.flip(1).sort(0).values, expected.labels.sort(0).values)
    assert lattice.counts == expected.counts


def test_an_observation_that_nothing_fits_is_refused_or_kept() -> None:
    with pytest.raises(InputError, match="sample 0: no labels satisfy its formula"):
        sums([[9, -1, -1], [2, -1, -1]])
    kept = sums([[9, -1, -1], [2, -1, -1]], impossible="keep")
    assert kept.counts == [0, 5]
    assert kept.impossible.tolist() == [True, False]
    assert kept.lengths.tolist() == [2, 2]


def test_slots_may_be_read_in_another_order_without_any_observation() -> None:
    digits = Lattice.from_rule(0, lambda n, y: 10 * n + y, lambda n: n, [42], 2, 10, read_at=[1, 0])
    assert digits.to_candidates().labels.tolist() == [[2, 4]]
