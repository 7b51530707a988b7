"""Attacks on logic programs: what they give is checked by a run of clingo for each label combination, or refused."""

from __future__ import annotations

import copy
import itertools
import pickle
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clipper import Candidates
from clipper.candidates import Program, Sentence
from clipper.errors import BudgetError, ClipperError
from tests.hardening.attack import EFFORT, answered, check_all_answer, refused

clingo = pytest.importorskip("clingo", reason="clingo is not installed (extra logic)")

TOTAL = "total(S) :- S = #sum { D,X : digit(X, D) }."
DIGITS = {"digit": range(4)}
PAIR = ("digit(x1, _)", "digit(x2, _)")


def brute_force(
    theory: str, sentence: str, labels: Sequence[Any] = range(4), slots: Sequence[str] = PAIR, facts: str = ""
) -> list[list[int]]:
    """The label combinations that, as facts, are consistent with the theory and with the sentence: a run for each."""
    found = []
    for row in itertools.product(range(len(labels)), repeat=len(slots)):
        control = clingo.Control(["--warn=none", "--opt-mode=ignore"], logger=lambda *_: None)
        atoms = " ".join(slot.replace("_", str(labels[i])) + "." for slot, i in zip(slots, row, strict=True))
        wanted = f"wanted_here :- {sentence}.\n" if sentence else "wanted_here."
        control.add("base", [], f"{theory}\n{atoms}\n{facts}\n{wanted}\n:- not wanted_here.")
        control.ground([("base", [])])
        if control.solve().satisfiable:
            found.append(list(row))
    return found


def given(theory: Any, sentence: Any, **options: Any) -> list[list[int]] | ClipperError:
    """The candidates of one sample, or the refusal."""
    options = {"labels": DIGITS, "slots": PAIR, **options}
    found = answered(lambda: Candidates.from_program(theory, [sentence], **options))
    return found if isinstance(found, ClipperError) else found.labels.tolist()


HARMLESS = {
    "a choice": f"{TOTAL} {{ z }}.",
    "a disjunction": f"{TOTAL} a | b | c.",
    "many answer sets for the same labels": f"{TOTAL} {{ z(1..5) }}.",
    "a choice with a constraint": f"{TOTAL} {{ z }}. :- z, digit(x1, 0). :- not z, digit(x2, 0).",
    "negation": f"{TOTAL} low(X) :- digit(X, D), D < 2. high(X) :- digit(X, _), not low(X). :- high(x1).",
    "an even loop": f"{TOTAL} p :- not q. q :- not p. :- p, digit(x1, 1).",
    "an odd loop": f"{TOTAL} p :- digit(x1, 1), not p.",
    "a label atom that is always there": f"{TOTAL} digit(x1, 0).",
    "a label atom that may be there": f"{TOTAL} {{ digit(x1, 3) }}.",
    "classical negation": f"{TOTAL} -digit(x1, 2).",
    "shown atoms": f"{TOTAL} #show total/1. #show.",
    "a constant": f"#const most = 2. {TOTAL} :- digit(X, D), D > most.",
    "an optimum": f"{TOTAL} #minimize {{ D,X : digit(X, D) }}.",
    "a weak constraint": f"{TOTAL} :~ digit(x1, D). [D]",
    "an external": f"{TOTAL} #external e. :- e.",
    "a true external": f"{TOTAL} #external e. [true] :- e, digit(x1, 1).",
    "a defined atom": f"{TOTAL} #defined e/0. :- e.",
    "an acyclic graph": f"{TOTAL} #edge (D, E) : digit(x1, D), digit(x2, E).",
    "a heuristic": f"{TOTAL} {{ z }}. #heuristic z. [1, true]",
    "the part base": f"#program base. {TOTAL}",
    "a comment": f"{TOTAL} % :- digit(x1, 0). __holds(0).\n",
    "a block comment": f"{TOTAL} %* __holds(0). %* twice *% #show S : total(S). *%",
    "reserved names in strings": f'{TOTAL} say("__holds(0). #show X : y. %* ").',
    "names that only look reserved": f"{TOTAL} __holds_not(0). x__label(1, 2). __asked1. __holds' :- total(0).",
    "pools and intervals": f"{TOTAL} :- digit(x1, (1;2)). ok(0..3).",
    "conditional literals": f"{TOTAL} all :- digit(X, D) : X = x1, D = 0..3.",
    "an undefined operation": f"{TOTAL} odd(X + a) :- digit(X, 1).",
    "classes of classes": "total(3) :- big(x1). big(X) :- digit(X, D), D >= 2.",
    "nothing but a constraint": "total(3). :- digit(x1, D), digit(x2, D).",
    "a function of itself": f"{TOTAL} at(f(X), D) :- digit(X, D). :- at(f(x2), 0).",
    "carriage returns": f"{TOTAL}\r\n:- digit(x1, 0).\r\n",
    "other letters": f'{TOTAL} say("žlutý kůň 🐎"). % 🐎\n',
}


@pytest.mark.parametrize("what", HARMLESS)
def test_whatever_a_theory_says_the_candidates_are_those_of_brute_force(what: str) -> None:
    theory = HARMLESS[what]
    expected = brute_force(theory, "total(3)")
    found = given(theory, "total(3)")
    assert found == expected if expected else isinstance(found, ClipperError)


HOSTILE = {
    "shown terms": f"{TOTAL} #show S : total(S).",
    "shown numbers": f"{TOTAL} #show 1.",
    "a projection": f"{TOTAL} {{ z }}. #project z/0.",
    "a projection on an atom": f"{TOTAL} {{ z }}. #project z : z.",
    "a sentence that holds anyway": f"{TOTAL} __holds(0).",
    "all sentences hold": f"{TOTAL} __holds(X) :- X = 0..9.",
    "a question": f"{TOTAL} __asked(0).",
    "no question": f"{TOTAL} :- __asked(0).",
    "another label": f"{TOTAL} __label(0, 3).",
    "a label denied": f"{TOTAL} :- __label(0, 3).",
    "a label denied classically": f"{TOTAL} -__label(0, 3).",
    "a choice of labels": f"{TOTAL} {{ __label(0..1, 0..3) }}.",
    "labels in a function": f"{TOTAL} p(__label).",
    "labels behind a comment": f"{TOTAL} %* *% __holds(0).",
    "labels behind a string": f'{TOTAL} say("%*"). __holds(0).',
    "an external answer": f"{TOTAL} #external __holds(0). [true]",
    "labels shown": f"{TOTAL} #show __label/2.",
    "Python": f"{TOTAL} #script (python) print('hello') #end.",
    "Lua": f"{TOTAL} #script (lua) #end.",
    "an included file": f'{TOTAL} #include "other.lp".',
    "a program of clingo's": f"{TOTAL} #include <incmode>.",
    "another part": f"{TOTAL} #program other. :- digit(x1, 0).",
    "a part with parameters": f"{TOTAL} #program base(t).",
    "a theory of atoms": f"{TOTAL} #theory t {{ u {{ }}; &d/0 : u, any }}. :- &d {{ x1 }}.",
    "a slot that means something else": f"#const x1 = x2. {TOTAL}",
    "a number that is too large": f"{TOTAL} total(4294967299).",
    "an open comment": f"{TOTAL} %* and so on",
    "an open string": f'{TOTAL} say("and so on).',
    "a NUL": f"{TOTAL} \0 :- digit(x1, 0).",
    "half a letter": f"{TOTAL} % \ud800\n",
    "a syntax error": f"{TOTAL} p(X :- q.",
    "an unsafe variable": f"{TOTAL} p(X) :- not q(X).",
    "a contradiction": f"{TOTAL} :- digit(x1, D).",
    "nothing at all": "",
    "a file name": "theory.lp",
    "deep brackets": f"{TOTAL} p({'(' * 50_000}",
    "deep functions": f"{TOTAL} p({'f(' * 50_000}1{')' * 50_000}).",
    "a thousand warnings": f"{TOTAL} " + " ".join(f"p :- q{i}." for i in range(1500)) + " :- not p.",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_could_change_the_reading_of_labels_is_refused(what: str) -> None:
    error = refused(lambda: Candidates.from_program(HOSTILE[what], ["total(3)"], DIGITS, slots=PAIR))
    assert len(str(error)) < 5000


SENTENCES = {
    "another rule": "total(3). __holds(0)",
    "another rule with a dot": "total(3). __holds(0).",
    "another harmless rule": "total(3). p.",
    "a rule that asks": "total(3), __asked(0)",
    "a rule that knows": "__holds(0)",
    "a label that is Clipper's": "__label(0, 3)",
    "a directive": "total(3). #show X : total(X).",
    "an open comment": "total(3) %*",
    "a closed comment": "total(3) *%",
    "a head": "p :- total(3)",
    "a part": "total(3). #program other",
    "an open string": 'total(3), say("',
    "a bracket": "total(3",
    "too many brackets": "total(3))",
    "a condition on nothing": ": total(3)",
    "an empty alternative": ", total(3)",
    "an unsafe variable": "not digit(X, 3)",
    "a NUL": "total(3)\0",
    "half a letter": 'total(3), "\ud800" = "\ud800"',
    "an included file": 'total(3). #include "other.lp".',
    "a large number": "total(4294967299)",
    "an unknown label": "digit(x1, 7)",
    "a misspelt atom": "totl(3)",
    "a script": "total(3). #script (python) #end.",
}


@pytest.mark.parametrize("what", SENTENCES)
def test_a_sentence_is_one_body_and_nothing_else(what: str) -> None:
    refused(lambda: Candidates.from_program(TOTAL, ["total(2)", SENTENCES[what]], DIGITS, slots=PAIR))


FINE = (
    "total(3)", "total(3).", " total(3) ", "total(3) % three", "total(3),\n % and\n digit(x1, 1)", "total(3) %* 3 *%",
    'total(3), "__holds(0)" = "__holds(0)"', 'total(3), "a  b" != "a b"', "", ".", "not total(3)",
    "digit(x1, D), D > 1",    "digit(X, 3)", "1 { digit(X, 3) } 1", "digit(x1, D) : D = 0",
    "total(S), S > 4, not digit(x2, 2)", "#true",
    "total(1;2)", "not not total(3)", "total(3); digit(x1, 1..2)", "digit(x1, D), digit(x2, D)",
)  # fmt: skip


def test_sentences_that_are_one_body_mean_what_clingo_takes_them_for() -> None:
    found = Candidates.from_program(TOTAL, FINE, DIGITS, slots=PAIR)
    for i, sentence in enumerate(FINE):
        expected = brute_force(TOTAL, sentence.strip().removesuffix(".") + "\n")
        assert found.labels[found.sample == i].tolist() == expected, sentence


def test_sentences_that_differ_in_spaces_of_a_string_stay_apart() -> None:
    theory = f'{TOTAL} say("a b"). say("a  b").'
    samples = ['say("a b"), total(0)', 'say("a  b"), total(1)', 'say("a   b"), total(1)']
    assert Candidates.from_program(theory, samples[:2], DIGITS, slots=PAIR).counts == [1, 2]
    refused(lambda: Candidates.from_program(theory, samples, DIGITS, slots=PAIR))


FACTS = (
    "__holds(0).", "__asked(0).", ":- __label(0, 0).", "#show 1.", "#show X : total(X).", "{ z }. #project z/0.",
    "#program p.", "p(1", "p. %*", "#script (python) #end.", '#include "other.lp".', "p. \0", "\ud800",
    "#const x1 = 3.",    'say("', "*%", "p(X).", "#minimize { 1 : p }.",
)  # fmt: skip


def test_facts_cannot_reach_what_is_not_theirs() -> None:
    for facts in FACTS:
        refused(lambda: given_sentence(Sentence("total(3)", facts=facts)))  # noqa: B023
    for facts in (":- digit(x1, 0).", ":- digit(x1, 0). % %* ", "%* __holds(0). *% :- digit(x1,\n0).", "{ z }.", ""):
        found = given_sentence(Sentence("total(3)", facts=facts))
        assert found.labels.tolist() == brute_force(TOTAL, "total(3)", facts=facts)


def given_sentence(sentence: Any) -> Candidates:
    return Candidates.from_program(TOTAL, [sentence], DIGITS, slots=PAIR)


SLOTS = (
    ["digit(x1, _)", "digit( x1 ,_ )"], ["digit(x1)"], ["digit(_, _)"], ["digit(X, _)"], ["digit(x1. p, _)"], ["_"],
    [""], ["digit(x1), digit(_)"], ["digit(x1, _). __holds(0)"], ["digit(f(x1, _)"], ['digit("x1, _)'],
    ["digit(x1, _) %"],
    ["__label(x1, _)"], ["digit(__label, _)"], ["Digit(x1, _)"], ["digit(x1; x2, _)"], ["digit(1..2, _)"],
    ["digit(\0, _)"], ["digit(\ud800, _)"], ["digit(4294967296, _)"], "digit(x1, _)", [None], [3], 3, None,
    [["digit(x1, _)"]], {"a": 1},
    ["digit(x1, _)", "digit(1 + 1, _)", "digit(2, _)"], ["dígit(x1, _)"], [b"digit(x1, _)"],
)  # fmt: skip


def test_slots_that_are_no_label_atoms_are_refused() -> None:
    for slots in SLOTS:
        refused(lambda: Candidates.from_program(TOTAL, ["total(3)"], DIGITS, slots=slots))  # noqa: B023


@pytest.mark.parametrize("slots", [('digit("a, b", _)', "digit(f(x, (1, 2)), _)"), ("digit(-1, _)", "digit(_x, _)")])
def test_slots_may_hold_any_terms(slots: tuple[str, ...]) -> None:
    found = given(TOTAL, "total(3)", slots=slots)
    assert found == [[0, 3], [1, 2], [2, 1], [3, 0]]


LABELS = ["dog", "not", "in front of", 'a "quoted" one', "back\\slash", "two\nlines", "%* __holds(0). *%", "x). p(y",
          7, -7, "7", "Dog", "_x", "", " ", "žlutý 🐎", "#show", "_", "dog,cat", np.int64(9)]  # fmt: skip


def test_labels_may_be_any_words() -> None:
    theory = "first(L) :- name(o1, L). :- name(o1, L), name(o2, L)."
    found = Candidates.from_program(theory, ["first(7)", "first(dog)", 'first("not")', ""], {"name": LABELS},
                                    slots=["name(o1, _)", "name(o2, _)"])  # fmt: skip
    others = len(LABELS) - 1
    assert found.counts == [others, others, others, len(LABELS) * others]
    assert found.labels[found.sample == 0][:, 0].unique().tolist() == [LABELS.index(7)]
    assert found.labels[found.sample == 2][:, 0].unique().tolist() == [1]


def random_theory(rng: random.Random) -> tuple[str, str]:
    """Rules, choices, disjunctions, constraints and aggregates over the labels 0 … 2 of three slots."""

    def literal(positive: bool = False) -> str:
        atom = rng.choice([f"at(s{rng.randrange(3)}, {rng.randrange(3)})", *(f"p{i}" for i in range(4))])
        return atom if positive or rng.random() < 0.6 else f"not {atom}"

    def body() -> str:
        parts = [literal() for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.2:
            parts.append(f"{rng.randint(1, 2)} {{ at(S, {rng.randrange(3)}) }} {rng.randint(2, 3)}")
        if rng.random() < 0.1:
            parts.append(f"#sum {{ L,S : at(S, L) }} > {rng.randrange(5)}")
        return ", ".join(parts)

    rules = [f"#defined p{i}/0." for i in range(4)]
    for _ in range(rng.randint(1, 7)):
        head = rng.choice(
            [f"p{rng.randrange(4)}", f"{{ p{rng.randrange(4)} }}", f"p{rng.randrange(4)} | p{rng.randrange(4)}"]
        )
        rules.append(f"{head} :- {body()}." if rng.random() < 0.75 else f":- {body()}.")
    extra = ["#show p0/0.", "#minimize { 1 : p0 }.", "% __holds(0).\n", "%* #show X : p(X). *%", "{ p3 }.", ""]
    return " ".join([*rules, rng.choice(extra)]), body()


@pytest.mark.parametrize("part", range(3))
def test_random_theories_agree_with_a_run_for_each_combination(part: int) -> None:
    slots, labels = ["at(s0, _)", "at(s1, _)", "at(s2, _)"], {"at": range(3)}
    rng = random.Random(part)
    for _ in range(7 * EFFORT):
        theory, _ = random_theory(rng)
        sentences = [random_theory(rng)[1] for _ in range(3)]
        expected = {sentence: brute_force(theory, sentence, range(3), slots) for sentence in sentences}
        some = [sentence for sentence, rows in expected.items() if rows] or list(expected)
        program = Program(theory, labels, slots)
        found = answered(lambda: program.candidates(some))  # noqa: B023
        if isinstance(found, ClipperError):
            assert not any(expected.values()), (theory, expected)
            continue
        rows = [found.labels[found.sample == i].tolist() for i in range(len(some))]
        assert rows == [expected[sentence] for sentence in some], theory
        if rng.random() < 0.3:
            assert torch.equal(program.support(some), found.support)


def test_a_theory_in_a_file_includes_what_lies_beside_it_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, elsewhere = tmp_path / "own", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    for place, rule in ((folder, TOTAL), (elsewhere, "total(3).")):
        (place / "sums.lp").write_text(rule)
    path = folder / "theory.lp"
    monkeypatch.chdir(elsewhere)  # where a file of the same name lies
    path.write_text('#include "sums.lp".')
    assert given(path, "total(3)") == brute_force(TOTAL, "total(3)")
    for text in (f'#include "{elsewhere}/sums.lp".', '#include "../elsewhere/sums.lp".', '#include "absent.lp".',
                 '#include "theory.lp". #include <incmode>.'):  # fmt: skip
        path.write_text(text)
        refused(lambda: Candidates.from_program(path, ["total(3)"], DIGITS, slots=PAIR))
    for text in ("__holds(0).", "#show X : total(X).", "{ z }. #project z/0.", "#script (python) #end."):
        (folder / "hidden.lp").write_text(text)
        path.write_text(f'{TOTAL} #include "hidden.lp".')
        refused(lambda: Candidates.from_program(path, ["total(3)"], DIGITS, slots=PAIR))


def test_files_that_are_no_theories(tmp_path: Path) -> None:
    contents = {
        "a": b"\xff\xfe",
        "b": b"total(3).\0",
        "c": b"\xed\xa0\x80",
        "d": b"",
        "e": b"total(4294967299).",
        "f": bytes(range(256)),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    for path in (tmp_path, tmp_path / "absent", *(tmp_path / name for name in contents), Path("a\0b"), Path("")):
        refused(lambda: Candidates.from_program(path, ["total(3)"], DIGITS, slots=PAIR))  # noqa: B023


def wrong_calls() -> list[tuple[str, Callable[[], Any]]]:
    right: dict[str, Any] = {"theory": TOTAL, "samples": ["total(3)"], "labels": DIGITS, "slots": PAIR}
    wrong: dict[str, list[Any]] = {
        "theory": [None, 3, 1.5, b"total(3).", [TOTAL], {}, True, "", "p(", Path("/"), "\ud800"],
        "samples": [None, 3, "total(3)", [], [3], [None], [["total(3)"]], [b"total(3)"], {}, [1.5], np.zeros(2),
                    [TOTAL], torch.zeros(2), torch.tensor(1), ["\ud800"], iter([]), {"total(3)": 1}],
        "labels": [None, 3, [], {}, {"digit": []}, {"digit": 3}, {"digit": "0123"}, {"digit": [1, 1]}, {"digit": [1.5]},
                   {"digit": [None]}, {"digit": [True]}, {"Digit": [1]}, {"": [1]}, {3: [1]}, {"sign": [1]}, "digit",
                   {"digit": [2**31]}, {"digit": [10**5000]}, {"digit": ["\ud800"]}, {"digit": ["a\0b"]}, {"not": [1]},
                   {"digit": [[1]]}, {"digit": None}, {"digit": ["__label"]}, {"digit": range(0)}, ["digit"],
                   {"digit": [torch.tensor(1.5)]}, {"digit": {1: 2}.items()}],
        "budget": [-1, 0, 1.5, True, None, "9", float("nan"), float("inf"), [3], 1, 10**30, np.float64(3)],
        "time_limit": [0, -1, float("nan"), "9", None, True, [1], -float("inf"), 1e-9, 10**400, 1e300],
        "per_sample": [0, -1, 1.5, True, "3", [1], float("nan"), 10**30, False, np.float64(2)],
        "seed": [2**64, -(2**63) - 1, 1.5, None, "3", True, [0], float("nan"), 10**5000],
    }  # fmt: skip
    calls: list[tuple[str, Callable[[], Any]]] = []
    for name, values in wrong.items():
        for i, value in enumerate(values):
            options = {**right, name: value}
            calls.append((f"{name}: {type(value).__name__} {i}", _call(options)))
    return calls


def _call(options: dict[str, Any]) -> Callable[[], Any]:
    return lambda: Candidates.from_program(**options)


def test_wrong_arguments_are_answered_in_words() -> None:
    answers, refusals = check_all_answer(wrong_calls())
    assert refusals >= 90
    assert answers <= 10


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), "9", None, True, -float("inf")])
def test_a_time_limit_is_a_positive_number(wrong: Any) -> None:
    refused(lambda: Program(TOTAL, DIGITS, PAIR, time_limit=wrong))


def test_no_limit_of_time_is_a_limit() -> None:
    for limit in (float("inf"), 1e300, 10**400):
        assert given(TOTAL, "total(0)", time_limit=limit) == [[0, 0]]


def test_numbers_of_numpy_and_torch_are_numbers() -> None:
    found = Candidates.from_program(TOTAL, np.array(["total(3)"]), {"digit": np.arange(4)}, slots=np.array(PAIR),
                                    budget=np.int64(100), per_sample=torch.tensor(4), seed=np.uint8(3))  # fmt: skip
    assert found.labels.tolist() == brute_force(TOTAL, "total(3)")
    assert len(Candidates.from_program(TOTAL, (f"total({i})" for i in range(3)), DIGITS, slots=PAIR)) == 6


@pytest.mark.parametrize("per_sample", [1, 2, 3, 4, 5, 16, 10**9])
def test_draws_are_different_candidates(per_sample: int) -> None:
    theory = f"{TOTAL} {{ z(1..3) }}."
    for sentence in ("total(3)", "total(S), S != 3"):
        every = {tuple(row) for row in brute_force(TOTAL, sentence)}
        rows = Candidates.from_program(theory, [sentence], DIGITS, slots=PAIR, per_sample=per_sample).labels.tolist()
        assert len({tuple(row) for row in rows}) == len(rows) == min(per_sample, len(every))
        assert {tuple(row) for row in rows} <= every


def test_the_budget_holds_with_draws_too() -> None:
    with pytest.raises(BudgetError):
        Candidates.from_program(TOTAL, [""], DIGITS, slots=PAIR, per_sample=15, budget=14)
    assert len(Candidates.from_program(TOTAL, [""], DIGITS, slots=PAIR, per_sample=3, budget=14)) == 3
    with pytest.raises(BudgetError):
        Candidates.from_program(TOTAL, ["total(3)", "total(2)"], DIGITS, slots=PAIR, budget=6)
    assert len(Candidates.from_program(TOTAL, ["total(3)", "total(2)"], DIGITS, slots=PAIR, budget=7)) == 7


def test_programs_and_sentences_can_be_pickled_and_copied() -> None:
    program = Program(TOTAL, DIGITS, PAIR)
    sentence = Sentence("total(3)", facts="p.", slots=PAIR)
    for again in (pickle.loads(pickle.dumps(program)), copy.deepcopy(program)):
        assert again.candidates(["total(3)"]).labels.tolist() == brute_force(TOTAL, "total(3)")
    for other in (pickle.loads(pickle.dumps(sentence)), copy.deepcopy(sentence)):
        assert other == sentence
    candidates = program.candidates(["total(3)"])
    assert torch.equal(pickle.loads(pickle.dumps(candidates)).labels, candidates.labels)


@pytest.mark.parametrize("wrong", [None, 3, b"total(3)", ["total(3)"], "\ud800", "a\0"])
def test_sentences_are_texts(wrong: Any) -> None:
    refused(lambda: Sentence(wrong))
    refused(lambda: Sentence("total(3)", facts=wrong))
    refused(lambda: Sentence("total(3)", slots=["digit(x1, _)", wrong]))
