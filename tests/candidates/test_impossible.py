"""Samples that nothing satisfies: kept on request, without candidates, and in nobody's way."""

from __future__ import annotations

import pytest
import torch

from clipper import Candidates, CandidateSet, Clipper, Lattice, ProximityGraph, prune, rules
from clipper.candidates import Alignments
from clipper.candidates.rules import SUM
from clipper.engines import AblSim, Context, DolphinLoss, IsedLoss, SampledSemanticLoss, ScallopLoss, SemanticLoss
from clipper.errors import InputError
from clipper.training import train
from tests.machines import log_probs_for

TARGETS = [8, 99, 2, -1, 3, 5]
LENGTHS = [2, 2, 2, 1, 1, 3]
POSSIBLE = [True, False, True, False, True, True]
FORMS = ["listed", "lattice", "rule", "lattice of one length", "observed"]


def built(form: str) -> CandidateSet:
    """Samples of which two are impossible, the last but the second always."""
    keep = {"impossible": "keep"}
    if form == "listed":
        return Candidates.from_rule(sum, TARGETS, LENGTHS, 10, **keep)
    if form == "lattice":
        return Lattice.from_rule(*SUM, TARGETS, LENGTHS, 10, **keep)
    if form == "rule":
        return Candidates.from_rule(rules.total(), TARGETS, LENGTHS, 10, **keep)
    if form == "observed":
        return rules.addition(1).candidates([*TARGETS[:3], 19, *TARGETS[4:]], 2, 10, budget=0, **keep)
    return Lattice.from_rule(*SUM, TARGETS, 2, 10, **keep)


def possible_of(form: str) -> CandidateSet:
    """The samples of these that have candidates, built without the others."""
    targets = [target for target, fine in zip(TARGETS, POSSIBLE, strict=True) if fine]
    lengths = [length for length, fine in zip(LENGTHS, POSSIBLE, strict=True) if fine]
    return Candidates.from_rule(sum, targets, lengths if form in FORMS[:3] else 2, 10)


@pytest.fixture(params=FORMS)
def pair(request: pytest.FixtureRequest) -> tuple[CandidateSet, CandidateSet]:
    return built(request.param), possible_of(request.param)


def mask() -> torch.Tensor:
    return torch.tensor(POSSIBLE)


def test_targets_that_nothing_satisfies_are_refused_unless_they_are_kept() -> None:
    for build in (
        lambda: Candidates.from_rule(sum, TARGETS, 2, 10),
        lambda: Lattice.from_rule(*SUM, TARGETS, 2, 10),
        lambda: rules.total().candidates(TARGETS, 2, 10),
    ):
        with pytest.raises(InputError, match=r"sample 1: no labels of 2 slots .*99.*impossible='keep'"):
            build()
    for build in (Candidates.from_rule, lambda _, *rest, **options: Lattice.from_rule(*SUM, *rest, **options)):
        with pytest.raises(InputError, match='expected impossible to be "refuse" or "keep"'):
            build(sum, TARGETS, 2, 10, impossible=True)


def test_a_sample_without_candidates_is_there_and_has_none(pair: tuple[CandidateSet, CandidateSet]) -> None:
    kept, possible = pair
    assert kept.samples == 6
    assert [count > 0 for count in kept.counts] == POSSIBLE
    assert kept.possible().tolist() == POSSIBLE
    assert kept.impossible.tolist() == [not fine for fine in POSSIBLE]
    assert possible.impossible is None
    assert kept.support.reshape(6, -1).any(1).tolist() == POSSIBLE
    assert (kept.kind >= 0).sum(1).tolist() == kept.lengths.tolist()
    assert kept.log_counts.isneginf().tolist() == [not fine for fine in POSSIBLE]
    assert (kept.first >= 0).any(1).tolist() == POSSIBLE
    log_probs = log_probs_for(kept, 0)
    assert kept.log_probability(log_probs).isneginf().tolist() == [not fine for fine in POSSIBLE]
    assert kept.marginals(log_probs)[~mask()].abs().sum() == 0
    assert kept.entropy(log_probs)[~mask()].abs().sum() == 0
    assert kept.contains(kept.first).tolist() == POSSIBLE


def test_the_other_samples_are_as_they_are_without_it(pair: tuple[CandidateSet, CandidateSet]) -> None:
    kept, possible = pair
    log_probs = log_probs_for(kept, 0)
    for some in (kept.batch(mask()), kept.batch(mask().nonzero()[:, 0])):
        assert some.impossible is None
        assert some.counts == possible.counts
        assert torch.equal(some.to_candidates().labels, possible.labels)
    assert torch.equal(kept.support.reshape(6, -1)[mask()].flatten(), possible.support.flatten())
    own = log_probs[mask()]
    for name in ("log_probability", "marginals", "entropy"):
        torch.testing.assert_close(getattr(kept, name)(log_probs)[mask()], getattr(possible, name)(own))
    for found, expected in (
        (kept.top_k(log_probs, 2), possible.top_k(own, 2)),
        (kept.to_candidates(), possible),
    ):
        assert found.samples == 6
        assert torch.equal(found.labels, expected.labels)
        assert torch.equal(mask().nonzero()[:, 0][expected.sample], found.sample)
        assert torch.equal(found.kind, kept.kind)
        assert found.impossible.tolist() == [not fine for fine in POSSIBLE]
    for logs in (None, log_probs):
        drawn = kept.draw(2, 1, logs)
        assert [count > 0 for count in drawn.counts] == POSSIBLE
        assert bool(kept.batch(drawn.sample).contains(drawn.labels).all())


def test_a_gradient_of_the_whole_leaves_it_out(pair: tuple[CandidateSet, CandidateSet]) -> None:
    kept, possible = pair
    log_probs = log_probs_for(kept, 0).requires_grad_()
    (gradient,) = torch.autograd.grad(kept.log_probability(log_probs).exp().sum(), log_probs)
    own = log_probs.detach()[mask()].requires_grad_()
    (expected,) = torch.autograd.grad(possible.log_probability(own).exp().sum(), own)
    torch.testing.assert_close(gradient[mask()], expected)
    assert gradient[~mask()].abs().sum() == 0


def test_parts_moves_and_restrictions_keep_it(pair: tuple[CandidateSet, CandidateSet]) -> None:
    kept, _ = pair
    assert kept.span(1, 4).counts == kept.counts[1:4]
    assert kept.span(1, 2).counts == [0]
    assert kept.batch([1, 3]).counts == [0, 0]
    assert kept.batch([1, 1, 0]).to("cpu").impossible.tolist() == [True, True, False]
    assert kept.batch([1]).to_candidates().labels.shape == (0, kept.slots)
    assert kept.batch([1]).top_k(log_probs_for(kept.batch([1]), 0), 2).counts == [0]
    assert kept.batch([1]).draw(3).counts == [0]
    allowed = kept.top_k(log_probs_for(kept, 0), 1).support
    restricted = kept.restrict(allowed)
    assert restricted.counts == [int(fine) for fine in POSSIBLE]
    assert restricted.impossible.tolist() == [not fine for fine in POSSIBLE]
    with pytest.raises(InputError, match=r"1 of 6 would lose their last candidate \(sample 0\)"):
        kept.restrict(allowed & (torch.arange(len(allowed)) >= kept.slots)[:, None])


@pytest.mark.parametrize("emptied", [[0], [1], [2], [0, 2], [0, 1, 2]])
@pytest.mark.parametrize("form", ["listed", "lattice"])
def test_samples_that_lose_their_last_candidate_keep_their_slots(form: str, emptied: list[int]) -> None:
    classes, domains = {"digit": 2, "sign": 2}, [[0, 1], [2, 3], [0, 1]]
    if form == "listed":
        whole: CandidateSet = Candidates.from_rule(sum, [2, 3, 4], [2, 3, 2], classes, domains=domains)
    else:
        whole = Lattice.from_rule(*SUM, [2, 3, 4], [2, 3, 2], classes, domains=domains)
    left = [i for i in range(3) if i not in emptied]
    allowed = torch.ones(3, 3, 4, dtype=torch.bool)
    allowed[emptied] = False
    found = whole.narrowed(allowed.flatten(0, 1))
    assert torch.equal(found.kind, whole.kind)
    assert found.possible().nonzero().flatten().tolist() == left
    listed = found.to_candidates()
    assert torch.equal(listed.labels, whole.batch(left).to_candidates().labels)
    assert torch.equal(listed.kind, whole.kind)
    assert [count > 0 for count in found.draw(1).counts] == [i in left for i in range(3)]
    if form == "listed":
        assert found.impossible is not None
        assert found.impossible.nonzero().flatten().tolist() == emptied
        assert torch.equal(found.first[left], whole.first[left])
        assert bool((found.first[emptied] == -1).all())


def test_outputs_that_nothing_gives_have_probability_zero() -> None:
    log_probs = torch.zeros(3, 2, 10).log_softmax(-1)
    expected = Candidates.from_rule(sum, [3, 5], 2, 10).output_probabilities(log_probs)
    for outputs in (
        Candidates.from_rule(sum, [3, 99, 5], 2, 10, impossible="keep"),
        Lattice.from_rule(*SUM, [3, 99, 5], 2, 10, impossible="keep"),
    ):
        for k in (None, 100):
            found = outputs.output_probabilities(log_probs, k)
            torch.testing.assert_close(found[:, [0, 2]], expected)
            assert found[:, 1].abs().sum() == 0


@pytest.mark.parametrize(
    ("form", "solver"), [("listed", "highs"), ("listed", "cp-sat"), *((form, "closed-form") for form in FORMS)]
)
@pytest.mark.parametrize("objective", ["exact", "paper"])
@pytest.mark.parametrize("k", [1, 8])
def test_pruning_leaves_it_alone_and_does_not_listen_to_it(form: str, solver: str, objective: str, k: int) -> None:
    if solver != "closed-form":
        pytest.importorskip("highspy")
    kept, possible = built(form), possible_of(form)
    embeddings = torch.rand(6, kept.slots, 3, generator=torch.Generator().manual_seed(0))
    graph = Clipper(k=k).graph(kept, embeddings)
    place = torch.where(mask(), mask().cumsum(0) - 1, -1)
    ends = [place[end // kept.slots] * kept.slots + end % kept.slots for end in (graph.source, graph.target)]
    heard = mask()[graph.source // kept.slots] & mask()[graph.target // kept.slots]
    rest = ProximityGraph.from_edges(ends[0][heard], ends[1][heard], graph.distance[heard])
    pruning, expected = prune(kept, graph, objective, solver), prune(possible, rest, objective, solver)
    assert pruning.candidates.batch(mask()).counts == expected.candidates.counts
    assert pruning.discarded == expected.discarded
    assert [count > 0 for count in pruning.candidates.counts] == POSSIBLE
    assert Clipper(k=k, objective=objective)(kept, embeddings).counts == pruning.candidates.counts


def test_the_random_control_discards_as_many_as_asked() -> None:
    kept = built("listed")
    graph = Clipper(k=1).graph(kept, torch.rand(6, 3, 2, generator=torch.Generator().manual_seed(0)))
    spare = sum(kept.counts) - 4
    assert prune(kept, graph, "random", count=spare).candidates.counts == [int(fine) for fine in POSSIBLE]
    exact = prune(kept, graph)
    assert prune(kept, graph, "random", imitate=exact).candidates.counts == exact.candidates.counts


def test_a_pool_without_any_candidate_is_pruned_to_itself() -> None:
    for nothing in (built("listed").batch([1, 3]), built("lattice").batch([1, 3])):
        graph = Clipper(k=1).graph(nothing, torch.rand(2, 3, 2))
        assert prune(nothing, graph).candidates.counts == [0, 0]


@pytest.mark.parametrize("form", FORMS[:2])
def test_losses_refuse_it_in_words_and_take_the_rest(form: str) -> None:
    kept = built(form)
    log_probs = log_probs_for(kept, 0)
    context = Context(embeddings=torch.rand(6, 3, 4))
    engines = [SemanticLoss(), SampledSemanticLoss(2), DolphinLoss(), ScallopLoss(k=3), AblSim(), IsedLoss(sum)]
    for engine in engines:
        with pytest.raises(InputError, match=r"2 of 6 \(sample 1, 3\).*candidates.batch\(possible\)"):
            engine(log_probs, kept, context)
    possible = kept.possible()
    assert bool(SemanticLoss()(log_probs[possible], kept.batch(possible)).isfinite().all())


@pytest.mark.parametrize("form", FORMS)
def test_the_masses_of_outputs_are_refused_in_words(form: str) -> None:
    kept = built(form)
    with pytest.raises(InputError, match=r"of 6 \(sample 1, 3\), which impossible='keep' kept; leave them out"):
        IsedLoss(sum).output_masses(log_probs_for(kept, 0), kept)


def test_training_refuses_it_in_words() -> None:
    network = torch.nn.Sequential(torch.nn.Linear(4, 10), torch.nn.LogSoftmax(-1))
    with pytest.raises(InputError, match="no labels satisfy the formula of"):
        train(network, (torch.rand(6, 3, 4), built("listed")), SemanticLoss(), epochs=1)


def test_files_and_smallest_lattices_have_no_place_for_it(tmp_path) -> None:  # type: ignore[no-untyped-def]
    kept = built("listed")
    for ask in (kept.to_arrow, lambda: kept.write(tmp_path / "kept.parquet"), lambda: Lattice.from_candidates(kept)):
        with pytest.raises(InputError, match="no labels satisfy"):
            ask()


def test_kinds_of_label_are_those_of_the_slots() -> None:
    classes, domains = {"digit": 3, "sign": 2}, [[0, 1, 2], [3, 4]]
    for kept in (
        Candidates.from_rule(lambda row: row[0] + row[1], [4, 99], 2, classes, domains=domains, impossible="keep"),
        Lattice.from_rule(*SUM, [4, 99], 2, classes, domains=domains, impossible="keep"),
    ):
        assert kept.kind.tolist() == [[0, 1], [0, 1]]
        assert kept.counts == [2, 0]


def test_partial_labels_may_be_empty_and_transcripts_longer_than_their_clip() -> None:
    empty = rules.partial_labels().candidates([[{1}, set()], [{0, 1}]], [2, 1], 3, impossible="keep")
    assert empty.counts == [0, 2]
    assert empty.lengths.tolist() == [2, 1]
    with pytest.raises(InputError, match="sample 0"):
        rules.partial_labels().candidates([[{1}, set()]], 2, 3)
    for budget in (0, 1_000):
        clips = rules.transcript().candidates([(0, 1, 0), (0, 1)], [2, 3], 2, budget=budget, impossible="keep")
        assert clips.counts == [0, 2]
        assert clips.lengths.tolist() == [2, 3]
        log_probs = log_probs_for(clips, 0)
        assert clips.log_probability(log_probs).isneginf().tolist() == [True, False]
        assert clips.marginals(log_probs)[0].abs().sum() == 0
    with pytest.raises(InputError, match="a frame for each of the 3 actions"):
        Alignments.from_texts([(0, 1, 0)], 2, 2)


@pytest.mark.parametrize("wrong", [(1, 1), (0, 3), (-1, 0), ()])
def test_transcripts_that_no_clip_can_have_are_refused_by_the_number_of_their_sample(wrong: tuple[int, ...]) -> None:
    with pytest.raises(
        InputError, match=r"sample 3: expected at least one action of 0 … 2, neighbouring ones different"
    ):
        rules.transcript().candidates([(0, 1), (0, 1), (2, 1), wrong], 3, 3, impossible="keep")


@pytest.mark.parametrize("form", FORMS)
def test_all_targets_may_be_impossible(form: str) -> None:
    targets = [99, 98]
    if form == "listed":
        kept: CandidateSet = Candidates.from_rule(sum, targets, [1, 2], 10, impossible="keep")
    elif form == "observed":
        kept = rules.addition(1).candidates(targets, 2, 10, impossible="keep")
    else:
        kept = Lattice.from_rule(*SUM, targets, 2 if "one" in form else [1, 2], 10, impossible="keep")
    log_probs = log_probs_for(kept, 0)
    assert kept.counts == [0, 0]
    assert not bool(kept.support.any())
    assert kept.log_probability(log_probs).isneginf().all()
    assert kept.marginals(log_probs).abs().sum() == 0
    assert kept.to_candidates().counts == [0, 0]
    assert kept.top_k(log_probs, 3).counts == kept.draw(3).counts == [0, 0]
    assert kept.batch([]).samples == 0


def test_a_machine_that_refuses_every_label_may_be_kept() -> None:
    kept = Lattice.from_rule(0, lambda *_: None, lambda state: state, [0, 1], [3, 1], 2, impossible="keep")
    assert kept.counts == [0, 0]
    assert kept.log_probability(log_probs_for(kept, 0)).isneginf().all()


@pytest.mark.parametrize("rule", [sum, rules.total(), rules.count(1)])
def test_targets_that_are_text_where_the_rule_gives_numbers_are_refused_in_words(rule) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(
        InputError, match=r"sample 0: the target '3' is text, and the rule gives numbers.*int\(target\)"
    ):
        Candidates.from_rule(rule, ["3", "2"], 2, 10)
    with pytest.raises(InputError, match=r"sample 1: the target 'four' is text"):
        Candidates.from_rule(rule, [2, "four"], 2, 10)


def test_text_is_a_target_like_any_other_where_the_rule_gives_text() -> None:
    with pytest.raises(InputError, match="no labels of 2 slots give the target 'odd'"):
        Candidates.from_rule(lambda labels: "even" if sum(labels) >= 0 else "none", ["odd"], 2, 10)
