"""A pool's groups and all ways to name them, and a classifier that predicts the mixture."""

import pytest
import torch
from torch import Tensor, nn

from clipper import Candidates, infer
from clipper.errors import InputError
from clipper.labelling import NamedPool, NamingMixture, name_pool
from clipper.labelling.namings import borne_out, neighbour_vote

EVEN_ODD = [(0, 6), (2, 8), (4, 6), (4, 8), (1, 5), (3, 7), (1, 9), (3, 9)]
SWAPPED = torch.tensor([5, 6, 7, 8, 9, 0, 1, 2, 3, 4])  # even digits and odd ones change places


def pairs(
    combinations: list[tuple[int, int]], classes: int, samples: int, seed: int
) -> tuple[Candidates, Tensor, Tensor]:
    """Sums of such pairs, their gold labels, and points around the centre of each label."""
    generator = torch.Generator().manual_seed(seed)
    gold = torch.tensor(combinations)[torch.randint(len(combinations), (samples,), generator=generator)]
    centres = torch.randn(classes, 16, generator=generator)
    points = centres[gold] + 0.2 * torch.randn(samples, 2, 16, generator=generator)
    return Candidates.from_rule(sum, gold.sum(1), slots=2, classes=classes), gold, points


@pytest.fixture(scope="module")
def even_odd() -> tuple[Candidates, Tensor, NamedPool[Candidates]]:
    """Sums of even or of odd digits, their gold labels, and the pool with its names."""
    candidates, gold, points = pairs(EVEN_ODD, 10, 150, 0)
    return candidates, gold, name_pool(candidates, points, most=200)


def test_names_that_no_formula_tells_apart_are_all_found(
    even_odd: tuple[Candidates, Tensor, NamedPool[Candidates]],
) -> None:
    candidates, gold, pool = even_odd
    assert pool.verdict == "ambiguous"
    assert not pool.identified.any()
    assert {tuple(naming) for naming in pool.namings.tolist()} == {tuple(range(10)), tuple(SWAPPED.tolist())}
    # a hundred samples were inferred, and the others have what their neighbours have
    right = [pool.candidates.contains(naming[gold]).double().mean() for naming in pool.namings]
    assert max(right) > 0.97
    assert sum(pool.candidates.counts) < 1.1 * candidates.samples  # labels of one naming, not of both


def test_classes_that_look_different_are_not_merged_by_a_map_that_the_formulas_allow() -> None:
    # 2 3 4 may be called 3 2 3 or 4 1 2 by a classifier: the sums stay the same
    candidates, gold, points = pairs([(0, 0), (0, 1), (2, 3), (2, 4)], 5, 150, 0)
    pool = name_pool(candidates, points)
    assert pool.verdict == "joint"
    assert pool.namings.tolist() == [[0, 1, 2, 3, 4]]
    assert pool.candidates.contains(gold).double().mean() > 0.97


def test_a_pool_with_a_label_that_nobody_has_is_not_called_joint() -> None:
    candidates, _, points = pairs([(0, 0), (0, 1), (2, 3), (2, 4)], 6, 150, 0)
    pool = name_pool(candidates, points)
    assert pool.verdict == "ambiguous"
    assert pool.identified.tolist() == [True] * 5 + [False]


def test_a_pool_of_noise_is_left_as_it_was() -> None:
    candidates, _, points = pairs(EVEN_ODD, 10, 30, 0)
    noise = torch.randn(points.shape, generator=torch.Generator().manual_seed(1))
    pool = name_pool(candidates, noise)
    assert pool.verdict in ("uninformative", "unsettled")
    assert pool.candidates.counts == candidates.counts
    assert pool.namings.tolist() == [list(range(10))]  # sums of all digits have no symmetry


def test_a_sample_that_its_neighbours_contradict_has_no_say() -> None:
    candidates, gold, points = pairs(EVEN_ODD, 10, 80, 0)
    misread = int((gold == torch.tensor([4, 6])).all(1).nonzero()[0])
    other = int((gold == torch.tensor([1, 5])).all(1).nonzero()[0])
    points[misread] = points[other]  # a four and a six that look like a one and a five
    sure = borne_out(infer(candidates, points))
    assert not sure[misread]
    assert sure.double().mean() > 0.9


def test_a_vote_is_among_instances_of_the_same_kind() -> None:
    points = torch.tensor([[[0.0], [0.0]], [[0.1], [0.1]]])
    labels, kind = torch.tensor([[1, 3], [-1, -1]]), torch.tensor([[0, 1], [0, 1]])
    assert neighbour_vote(points, labels, kind, classes=4).argmax(2).tolist() == [[1, 3], [1, 3]]


def test_a_mixture_learns_one_naming_and_predicts_all(
    even_odd: tuple[Candidates, Tensor, NamedPool[Candidates]],
) -> None:
    mixture = NamingMixture(nn.LogSoftmax(-1), even_odd[2])
    inputs = torch.randn(7, 10)
    assert torch.equal(mixture.train()(inputs), inputs.log_softmax(-1))
    predicted, own = mixture.eval()(inputs).exp(), inputs.softmax(-1)
    assert torch.allclose(predicted, (own + own[:, SWAPPED]) / 2)


def test_embeddings_of_another_pool_are_refused() -> None:
    candidates, _, points = pairs(EVEN_ODD, 10, 20, 0)
    with pytest.raises(InputError, match=r"expected embeddings of shape \(20, 2, d\)"):
        name_pool(candidates, points[:, :1])
