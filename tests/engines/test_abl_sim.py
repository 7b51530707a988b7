from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clipper.candidates import Candidates
from clipper.engines import AblSim, Context
from clipper.errors import InputError
from tests.engine_oracles import facts_of, gradient, product, rows_of


def _batch(seed, samples=3):
    """Ragged samples of one kind, embeddings in three dimensions."""
    generator = torch.Generator().manual_seed(seed)
    lists = []
    for _ in range(samples):
        slots = int(torch.randint(1, 4, (), generator=generator))
        every = list(itertools.product(range(3), repeat=slots))
        picked = torch.randperm(len(every), generator=generator)[:5].tolist()
        lists.append([every[i] for i in picked])
    candidates = Candidates.from_lists(lists, classes=3)
    shape = (candidates.samples, candidates.slots)
    log_probs = torch.randn(*shape, 3, generator=generator, dtype=torch.float64).log_softmax(-1)
    return log_probs, candidates, torch.randn(*shape, 3, generator=generator, dtype=torch.float64)


def _options(log_probs, candidates):
    """Candidates within the smallest revision + 1, sample by sample."""
    result = []
    for i in range(candidates.samples):
        prediction = log_probs[i].argmax(1).tolist()
        rows = rows_of(candidates, i)
        distance = [sum(prediction[slot] != label for slot, label in facts_of(row)) for row in rows]
        result.append([row for row, d in zip(rows, distance, strict=True) if d <= min(distance) + 1])
    return result


def _similarity(labelling, embeddings):
    """The definition, instance by instance."""
    instances = [
        (embeddings[i, slot], label) for i, row in enumerate(labelling) for slot, label in sorted(facts_of(row))
    ]
    scores = []
    for i, (vector, label) in enumerate(instances):
        distances = {True: [], False: []}
        for j, (other, other_label) in enumerate(instances):
            if i != j:
                cosine = torch.nn.functional.cosine_similarity(vector, other, dim=0)
                distances[label == other_label].append(1 - cosine.item())
        means = {equal: sum(values) / len(values) if values else 0.0 for equal, values in distances.items()}
        scores.append(means[False] - means[True])
    return sum(scores) / len(scores)


def _z(values):
    values = torch.tensor(values, dtype=torch.float64)
    deviation = values.std(correction=0)
    return (values - values.mean()) / deviation if deviation > 1e-9 else torch.zeros_like(values)


def _scores(log_probs, candidates, embeddings):
    labellings = list(itertools.product(*_options(log_probs, candidates)))
    confidence = [
        float(torch.stack([product(log_probs[i], facts_of(row)) for i, row in enumerate(labelling)]).prod())
        for labelling in labellings
    ]
    confidence = [value / max(confidence) for value in confidence]
    similarity = [_similarity(labelling, embeddings) for labelling in labellings]
    return labellings, 0.96 * _z(similarity) + 0.04 * _z(confidence)


@settings(max_examples=20)
@given(st.integers(0, 10_000))
def test_the_beam_finds_the_best_of_all_labellings(seed):
    log_probs, candidates, embeddings = _batch(seed)
    labellings, scores = _scores(log_probs, candidates, embeddings)
    found = AblSim().abduce(log_probs, candidates, embeddings)
    chosen = labellings.index(tuple(tuple(row) for row in found.tolist()))
    assert scores[chosen].item() == pytest.approx(scores.max().item(), abs=1e-9)


def test_the_loss_is_the_cross_entropy_to_the_abduced_labels():
    log_probs, candidates, embeddings = _batch(1)
    log_probs.requires_grad_()
    labels = AblSim().abduce(log_probs, candidates, embeddings)
    losses = AblSim()(log_probs, candidates, Context(embeddings=embeddings))
    expected = torch.stack([-product(log_probs[i], facts_of(tuple(labels[i].tolist()))).log() for i in range(3)])
    torch.testing.assert_close(losses, expected)
    torch.testing.assert_close(gradient(losses, log_probs), gradient(expected, log_probs))


def test_finite_differences_confirm_the_gradient():
    log_probs, candidates, embeddings = _batch(2)
    engine = AblSim(entropy=0.2)
    assert torch.autograd.gradcheck(
        lambda x: engine(x, candidates, Context(embeddings=embeddings)), log_probs.requires_grad_()
    )


def test_clusters_overrule_a_weakly_confident_classifier():
    generator = torch.Generator().manual_seed(0)
    gold = torch.randint(3, (8, 2), generator=generator)
    embeddings = torch.eye(3)[gold] + 0.05 * torch.randn(8, 2, 3, generator=generator)
    log_probs = (0.5 * torch.eye(3)[gold] + 0.6 * torch.randn(8, 2, 3, generator=generator)).log_softmax(-1)
    candidates = Candidates.from_rule(sum, gold.sum(1), slots=2, classes=3)
    predicted = (log_probs.argmax(2) == gold).double().mean()
    abduced = (AblSim(revisions=2).abduce(log_probs, candidates, embeddings) == gold).double().mean()
    assert predicted < 0.8 < abduced


def test_a_narrow_beam_still_gives_candidates():
    log_probs, candidates, embeddings = _batch(3, samples=6)
    assert candidates.contains(AblSim(beam=2).abduce(log_probs, candidates, embeddings)).all()


def test_whole_batches_do_not_underflow():
    gold = torch.randint(10, (64, 3), generator=torch.Generator().manual_seed(0))
    candidates = Candidates.from_rule(sum, gold.sum(1), slots=3, classes=10).draw(5)
    log_probs = torch.full((64, 3, 10), -20.0)
    losses = AblSim(beam=20)(log_probs, candidates, Context(embeddings=torch.rand(64, 3, 4)))
    torch.testing.assert_close(losses, torch.full((64,), 60.0))


def test_what_it_cannot_compare_is_refused():
    log_probs, candidates, embeddings = _batch(0)
    with pytest.raises(InputError, match=r"embeddings of shape \(3, .*, d\)"):
        AblSim()(log_probs, candidates, Context(embeddings=embeddings[0]))
    kinds = Candidates.from_lists([[(0, 2)]], classes={"name": 2, "relation": 2})
    with pytest.raises(InputError, match=r"one kind of label.*got name, relation"):
        AblSim()(torch.zeros(1, 2, 4).log_softmax(-1), kinds, Context(embeddings=torch.zeros(1, 2, 3)))
    with pytest.raises(InputError, match="beam of at least 1"):
        AblSim(beam=0)


def test_a_sample_without_candidates_cannot_be_abduced():
    candidates = Candidates.from_rule(sum, [3, 99], 3, 3, impossible="keep")
    log_probs, embeddings = torch.zeros(2, 3, 3).log_softmax(-1), torch.rand(2, 3, 4)
    with pytest.raises(InputError, match=r"no labels satisfy the formula of 1 of 2 \(sample 1\).*batch\(possible\)"):
        AblSim().abduce(log_probs, candidates, embeddings)
    possible = candidates.possible()
    found = AblSim().abduce(log_probs[possible], candidates.batch(possible), embeddings[possible])
    assert found.sum(1).tolist() == [3]
