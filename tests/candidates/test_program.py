from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clipper import Candidates
from clipper.candidates import Program, Sentence
from clipper.candidates import program as program_module
from clipper.errors import BudgetError, FileError, InputError
from tests.theories import BENCHMARKS

pytest.importorskip("clingo", reason="clingo is not installed (extra logic)")

TOTAL = "total(S) :- S = #sum { D,X : digit(X, D) }."
DIGITS = {"digit": range(10)}
PAIR = ["digit(x1, _)", "digit(x2, _)"]
ONTOLOGY = "is_a(dog, animal). is_a(cat, animal). is_a(cup, thing). name(O, P) :- name(O, C), is_a(C, P)."
SCENE = {"name": ["dog", "cat", "cup"], "rel": ["on", "in front of"]}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_program_gives_the_candidates_of_the_rule(name: str) -> None:
    ours, theirs = BENCHMARKS[name].by_program(), BENCHMARKS[name].by_rule()
    assert torch.equal(ours.labels, theirs.labels)
    assert torch.equal(ours.offsets, theirs.offsets)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_brave_consequences_are_the_support(name: str) -> None:
    benchmark = BENCHMARKS[name]
    program = Program(benchmark.theory, {"label": benchmark.labels}, benchmark.label_atoms)
    assert torch.equal(program.support(benchmark.sentences), benchmark.by_rule().support)


def test_a_scene_with_an_ontology_free_variables_and_negation() -> None:
    slots = ["name(o1, _)", "rel(_, o1, o2)", "rel(_, o1, o3)"]
    sentence = Sentence('name(o1, animal), rel("in front of", o1, X), not name(o1, cat)', slots=slots)
    other = Sentence("name(o1, thing)", slots=slots[:1])
    candidates = Candidates.from_program(ONTOLOGY, [sentence, other], SCENE)
    dog, cup, on, front = 0, 2, 3, 4
    expected = [[dog, on, front], [dog, front, on], [dog, front, front], [cup, -1, -1]]
    assert candidates.labels.tolist() == expected
    assert [(kind.name, kind.start, kind.stop) for kind in candidates.kinds] == [("name", 0, 3), ("rel", 3, 5)]


def test_a_label_may_be_a_superclass_of_another_label() -> None:
    labels = {"name": ["dog", "animal"]}
    candidates = Candidates.from_program(ONTOLOGY, ["name(o1, animal)"], labels, slots=["name(o1, _)"])
    assert candidates.labels.tolist() == [[0], [1]]


def test_facts_of_a_sample_are_its_own() -> None:
    samples = [Sentence("total(3)", facts=":- digit(x1, 0)."), "total(3)"]
    candidates = Candidates.from_program(TOTAL, samples, DIGITS, slots=PAIR)
    assert candidates.counts == [3, 4]


def test_candidates_of_a_program_made_in_inference_mode_can_be_trained_on() -> None:
    with torch.inference_mode():
        candidates = Candidates.from_program(TOTAL, ["total(3)"], DIGITS, slots=PAIR)
    logs = torch.zeros(1, 2, 10, requires_grad=True)
    candidates.log_probability(logs).sum().backward()
    assert logs.grad is not None


def test_a_theory_may_lie_in_a_file_and_include_another(tmp_path: Path) -> None:
    (tmp_path / "sums.lp").write_text(TOTAL)
    (tmp_path / "theory.lp").write_text('#include "sums.lp".\n#show total/1.\n#minimize { D,X : digit(X, D) }. a | b.')
    candidates = Candidates.from_program(tmp_path / "theory.lp", ["total(3)"], DIGITS, slots=PAIR)
    assert torch.equal(candidates.labels, Candidates.from_rule(sum, [3], 2, 10).labels)


literals = st.tuples(st.booleans(), st.integers(0, 2), st.integers(0, 2))


@settings(max_examples=15, deadline=None)
@given(st.lists(st.lists(literals, min_size=1, max_size=3), min_size=1, max_size=4))
def test_random_constraints_agree_with_brute_force(clauses: list[list[tuple[bool, int, int]]]) -> None:
    body = ". ".join(f"c{i} :- {'not ' if not yes else ''}at({slot}, {label})"
                     for i, clause in enumerate(clauses) for yes, slot, label in clause)  # fmt: skip
    sentence = ", ".join(f"c{i}" for i in range(len(clauses)))
    expected = [
        list(row)
        for row in itertools.product(range(3), repeat=3)
        if all(any((row[slot] == label) == yes for yes, slot, label in clause) for clause in clauses)
    ]
    program = Program(f"{body}.", {"at": range(3)}, ["at(0, _)", "at(1, _)", "at(2, _)"])
    if not expected:
        with pytest.raises(InputError, match="no labels satisfy"):
            program.candidates([sentence])
        return
    candidates = program.candidates([sentence])
    assert candidates.labels.tolist() == expected
    assert torch.equal(program.support([sentence]), candidates.support)


def test_draws_past_the_list_are_uniform_and_repeatable() -> None:
    every = {tuple(row) for row in Candidates.from_rule(sum, [9], 2, 10).labels.tolist()}
    program = Program(TOTAL, DIGITS, PAIR)
    sentences = [f"total(9), {i} = {i}" for i in range(200)]  # of ten candidates two each, so more than are listed
    drawn = program.candidates(sentences, per_sample=2)
    rows = [tuple(row) for row in drawn.labels.tolist()]
    seen = Counter(rows)
    assert drawn.distinct().counts == [2] * 200
    assert set(seen) == every
    assert 20 < min(seen.values()) <= max(seen.values()) < 60  # each is expected 40 times, with a deviation of 6
    again = program.candidates(sentences, per_sample=2)
    assert torch.equal(again.labels, drawn.labels)
    assert not torch.equal(program.candidates(sentences, per_sample=2, seed=1).labels, drawn.labels)


BAD = {
    "a syntax error": (f"{TOTAL}\nfoo(X :- bar.", "total(3)", r"theory:2:7-9: error: syntax error"),
    "an unsafe variable": (f"{TOTAL}\nfoo(X) :- not bar(X).", "total(3)", r"theory:2:.*unsafe.*'X'"),
    "an unsafe sentence": (TOTAL, "not digit(X, 3)", r"sample 1, 'not digit\(X, 3\)'.*unsafe"),
    "a sentence that ends early": (TOTAL, "total(4", r"sample 1, 'total\(4': error: syntax error"),
    "an unknown label": (TOTAL, "digit(x1, 12)", r"unknown label: sample 1.*digit\(x1,12\)"),
    "a misspelt atom": (TOTAL, "totl(3)", r"sample 1.*no labels satisfy.*rule head: totl\(3\)"),
    "an impossible sentence": (TOTAL, "total(40)", r"sample 1, 'total\(40\)': no labels satisfy"),
    "a contradictory theory": (f"{TOTAL} :- digit(x1, D).", "total(3)", r"sample 0.*the theory contradicts itself"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_programs_are_explained(what: str) -> None:
    theory, sentence, message = BAD[what]
    with pytest.raises(InputError, match=message):
        Candidates.from_program(theory, ["total(3)", sentence], DIGITS, slots=PAIR)


EXPLODING = {
    "without end": "p(0). p(X + 1) :- p(X).",
    "many rules": "p(1..80). q(A,B,C,D,E) :- p(A), p(B), p(C), p(D), p(E).",
    "a join that finds nothing": "p(1..2000). q :- p(A), p(B), p(C), A + B + C = 1.",
}


@pytest.mark.parametrize("what", EXPLODING)
def test_exploding_groundings_end_at_the_time_limit(what: str) -> None:
    with pytest.raises(BudgetError, match="grounding the theory for sample 0 took longer than the time limit of 1 s"):
        Candidates.from_program(EXPLODING[what], ["digit(x1, 1)"], DIGITS, slots=PAIR, time_limit=1.0)


def test_exploding_groundings_end_at_the_memory_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_module, "MEMORY", 300_000_000)
    with pytest.raises(BudgetError, match="more than 0 GB of memory"):
        Candidates.from_program(EXPLODING["many rules"], ["digit(x1, 1)"], DIGITS, slots=PAIR)


def test_too_many_candidates_pass_the_budget() -> None:
    with pytest.raises(BudgetError, match="more candidates than the budget"):
        Candidates.from_program(TOTAL, ["total(9)"], DIGITS, slots=PAIR, budget=9)
    assert len(Candidates.from_program(TOTAL, ["total(9)"], DIGITS, slots=PAIR, budget=10)) == 10


def test_slots_must_be_open_label_atoms(tmp_path: Path) -> None:
    for slots, message in ((["digit(x1)"], "one open argument"), (["sign(x1, _)"], "not a label atom"),
                           ([], "no slots"),
                           (["digit(x1, _)"] * 2, "different slots")):  # fmt: skip
        with pytest.raises(InputError, match=message):
            Candidates.from_program(TOTAL, ["total(3)"], DIGITS, slots=slots)
    with pytest.raises(FileError, match="no file"):
        Candidates.from_program(tmp_path / "absent.lp", ["total(3)"], DIGITS, slots=PAIR)
    with pytest.raises(InputError, match="one twice"):
        Candidates.from_program(TOTAL, ["total(3)"], {"digit": [1, 1]}, slots=PAIR)
