from __future__ import annotations

import pytest
import torch

from clipper import Candidates, Clipper
from clipper.engines import SemanticLoss
from clipper.errors import InputError
from clipper.training import MemoryBank, train
from clipper.training.samples import Samples
from clipper.training.schedule import PruningSchedule
from tests.training.problems import TinyNet, problem

CANDIDATES = Candidates.from_rule(sum, targets=[8, 2, 16], slots=2, classes=10)


def survivors(bank: int) -> PruningSchedule:
    samples = Samples(torch.zeros(3, 2, 1), CANDIDATES)
    return PruningSchedule(samples, Clipper(k=1, radius=0.5), None, once=False, bank=bank, seed=0)


def test_a_batch_of_one_finds_its_neighbour_in_the_bank():
    near = {0: [[1.0], [7.0]], 1: [[1.1], [50.0]]}
    for bank, expected in ((0, 9), (2, 3)):  # x₁ of sample 0 lies near x₁ of sample 1, which is 0, 1 or 2
        remembered = survivors(bank)
        remembered.begin([torch.tensor([1]), torch.tensor([0])], seed=0)
        remembered.of_batch(0, torch.tensor([near[1]]))
        before, kept = remembered.of_batch(1, torch.tensor([near[0]]))
        assert (len(before), len(kept)) == (9, expected)


def test_a_sample_is_never_its_own_neighbour_in_the_bank():
    remembered = survivors(3)
    embedding = torch.tensor([[[1.0], [1.0]]])
    remembered.begin([torch.tensor([0])] * 3, seed=0)
    for step in range(3):
        before, kept = remembered.of_batch(step, embedding)
        assert len(before) == len(kept)


def test_the_bank_forgets_the_samples_seen_first():
    bank = MemoryBank(size=2)
    for sample in (0, 1, 0, 2):
        bank.remember(torch.tensor([sample]), torch.full((1, 2, 1), float(sample)))
    assert bank.ids.tolist() == [0, 2]
    assert bank.embeddings[:, 0, 0].tolist() == [0.0, 2.0]


def test_a_bank_prunes_more_than_the_batch_alone():
    kept = [
        train(TinyNet(), problem(), SemanticLoss(), clip=Clipper(), bank=bank, epochs=3, batch=2) for bank in (0, 20)
    ]
    assert kept[1][-1].retained < kept[0][-1].retained


def test_a_bank_serves_samples_of_different_lengths():
    candidates = Candidates.from_rule(sum, targets=[2, 1, 3, 0], slots=[2, 1, 2, 1], classes=4)
    data = (torch.rand(4, 2, 6, generator=torch.Generator().manual_seed(0)), candidates)
    assert len(train(TinyNet(), data, SemanticLoss(), clip=Clipper(), bank=3, epochs=3, batch=1)) == 3


def test_an_empty_bank_is_refused():
    with pytest.raises(InputError, match="memory bank of at least 1"):
        MemoryBank(0)
