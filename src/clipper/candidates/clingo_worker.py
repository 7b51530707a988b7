"""clingo in a separate process, which is ended if grounding takes too long or too much memory.

It runs as a script, so that neither Clipper nor PyTorch is loaded. It reads a job as JSON from standard input and
writes frames to standard output. A frame is a header with two lengths, a JSON document, and codes as 32-bit integers.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import re
import struct
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, BinaryIO

LABEL, HOLDS, ASKED = "__label", "__holds", "__asked"
"""Reserved predicates: the label of a slot, which sentence holds, and which sentence is being solved (the others are
switched off, so that they cost nothing)."""
HEAD = struct.Struct("<QQ")
"""The header of a frame: the number of bytes of its document and of its codes."""
_RESERVED = re.compile(rf"(?<![\w'])(?:{LABEL}|{HOLDS}|{ASKED})(?![\w'])")
_TAKEN = f"the names {LABEL}, {HOLDS} and {ASKED} are reserved; choose others"
_STRING = re.compile(r'"(?:\\.|[^"\\])*"')
_CONSTANT = re.compile(r"(?<![\w'])_*[a-z][\w']*")
_MESSAGES = 1000
"""Largest number of messages that clingo prints."""
_REFUSED = {
    "ShowTerm": "#show of terms is not allowed in a theory: only the label atoms are read",
    "ProjectAtom": "#project is not allowed in a theory: candidates are projections on the label atoms",
    "ProjectSignature": "#project is not allowed in a theory: candidates are projections on the label atoms",
    "Script": "#script is not allowed in a theory: scripts are not run",
    "TheoryDefinition": "#theory is not allowed in a theory: there is no solver for its atoms",
}
_FEW = 4
"""If a sentence has less than this multiple of the wanted rows, draws list them all and pick from the list."""
_TRIES = 1_000_000
"""Label combinations to draw for a sentence before the draw fails."""


class RefusedError(Exception):
    """A statement that is not allowed in a theory, a slot, facts or a sentence; `line` is 0 for the theory."""

    def __init__(self, reason: str, line: int = 0) -> None:
        super().__init__(reason)
        self.line = line


class Reader:
    """Parses the user's texts with clingo. Accepts only complete statements without Clipper's reserved names."""

    def __init__(self, clingo: Any) -> None:
        self._clingo = clingo
        self._ast = importlib.import_module("clingo.ast")
        self._messages: list[str] = []

    def theory(self, path: str, folder: str | None) -> list[str]:
        """Check the file of a theory and the files that it includes, all below `folder`.

        Returns:
            The constants that the theory defines by #const.
        """
        nodes = self._parsed(self._ast.parse_files, [path])
        for file in {node.location.begin.filename for node in nodes} - {path}:
            if folder is None or not os.path.realpath(file).startswith(os.path.join(folder, "")):
                raise RefusedError(
                    f"it includes {file!r}; only files in the folder of a theory's own file can be included"
                )
        self._statements(nodes)
        return [node.name for node in nodes if node.ast_type.name == "Definition"]

    def atoms(self, slots: Sequence[dict[str, Any]], renamed: Sequence[str]) -> list[list[str]]:
        """The label atoms of each slot, as clingo writes them."""
        found = [[self._atom(atom, line) for atom in slot["atoms"]] for line, slot in enumerate(slots, start=1)]
        seen: dict[tuple[str, ...], int] = {}
        for line, atoms in enumerate(found, start=1):
            if seen.setdefault(tuple(sorted(atoms)), line) != line:
                raise RefusedError("expected different slots, got one twice", line)
            names = set(_CONSTANT.findall(_STRING.sub(" ", " ".join(atoms)))).intersection(renamed)
            if names:
                raise RefusedError(f"the theory gives {min(names)} another meaning by #const; rename one of them", line)
        return found

    def facts(self, text: str, line: int) -> str:
        """A sample's facts and rules in one line."""
        nodes = self._parsed(self._ast.parse_string, text, line)
        self._statements(nodes, line)
        return " ".join(str(node) for node in nodes if node.ast_type.name == "Rule").replace("\n", " ")

    def sentence(self, text: str, number: int, line: int) -> str:
        """The rule of a sentence: its text must be exactly one rule body."""
        head, asked = f"{HOLDS}({number})", f"{ASKED}({number})"
        if text in ("", "."):
            return f"{head} :- {asked}."
        whole = f"{head} :- {asked}, {text}" + ("" if text.endswith(".") else "\n.")
        nodes = self._parsed(self._ast.parse_string, whole, line)
        rules = [node for node in nodes[1:] if node.ast_type.name != "Comment"]  # the first one says: part base
        written = str(rules[0]).replace("\n", " ") if rules else ""
        if len(rules) != 1 or rules[0].ast_type.name != "Rule":
            raise RefusedError("expected one rule body, got more than that; rules belong in facts=", line)
        if len(_RESERVED.findall(_STRING.sub(" ", written))) != 2:
            raise RefusedError(_TAKEN, line)
        return written

    def _atom(self, text: str, line: int) -> str:
        try:
            symbol = self._clingo.parse_term(text, logger=self._log_message)
        except RuntimeError as error:
            why = self._reason(error)
            raise RefusedError(f"expected a label atom without variables, got {text} ({why})", line) from error
        found = str(symbol)
        if _RESERVED.search(_STRING.sub(" ", found)):
            raise RefusedError(_TAKEN, line)
        return found

    def _parsed(self, parse: Callable[..., None], text: str | list[str], line: int = 0) -> list[Any]:
        nodes: list[Any] = []
        try:
            parse(text, nodes.append, logger=self._log_message)
        except RuntimeError as error:
            raise RefusedError(self._reason(error), line) from error
        return nodes

    def _statements(self, nodes: Sequence[Any], line: int = 0) -> None:
        for node in nodes:
            kind = node.ast_type.name
            if kind == "Comment":
                continue
            place = node.location.begin
            at = "" if line else f"{place.filename}:{place.line}: "
            if kind in _REFUSED:
                raise RefusedError(at + _REFUSED[kind], line)
            if kind == "Program" and (node.name != "base" or node.parameters):
                raise RefusedError(f"{at}only the part base is grounded, so {node} would be ignored", line)
            if line and kind not in ("Rule", "Program"):
                raise RefusedError(f"expected facts and rules, got {node}; it belongs in the theory", line)
            if _RESERVED.search(_STRING.sub(" ", str(node))):
                raise RefusedError(at + _TAKEN, line)

    def _log_message(self, _: Any, message: str) -> None:
        if len(self._messages) < _MESSAGES:
            self._messages.append(" ".join(message.split()))

    def _reason(self, error: RuntimeError) -> str:
        """clingo's messages about an error, without positions in the text, which Clipper generated."""
        messages = [message for message in self._messages if "error" in message][:5] or [" ".join(str(error).split())]
        return re.sub(r"<string>:\d+:[\d-]+: ", "", "; ".join(messages))


class Group:
    """The grounded theory of all samples of one shape."""

    def __init__(self, clingo: Any, theory: str, text: str, classes: int, messages: list[str]) -> None:
        self.classes = classes
        options = ["--warn=none", "--warn=atom-undefined", "--opt-mode=ignore", "--project=project", "--models=0"]
        self.control = clingo.Control(options, lambda _, message: messages.append(message), _MESSAGES)
        self.control.load(theory)
        self.control.add("base", [], text)
        self.control.ground([("base", [])])
        atoms = self.control.symbolic_atoms
        self.holds = {a.symbol.arguments[0].number: a.literal for a in atoms.by_signature(HOLDS, 1)}
        self.asked = {a.symbol.arguments[0].number: a.literal for a in atoms.by_signature(ASKED, 1)}
        self.label = {
            (a.symbol.arguments[0].number, a.symbol.arguments[1].number): a.literal
            for a in atoms.by_signature(LABEL, 2)
        }

    def possible(self, literals: list[int]) -> bool:
        """Whether an answer set has these literals."""
        return bool(self.control.solve(assumptions=literals).satisfiable)

    def rows(self, sentence: int, most: int) -> tuple[list[list[int]], bool]:
        """The codes of each slot's label in all answer sets where the sentence holds, and whether there are more."""
        found: list[list[int]] = []
        with self.control.solve(assumptions=[self.holds[sentence]], yield_=True) as models:
            for model in models:
                if len(found) == most:
                    return found, True
                found.append(sorted(_codes(model)))
        return found, False

    def brave(self, sentence: int) -> list[int]:
        """The codes in some answer set where the sentence holds, without listing the answer sets."""
        codes: list[int] = []
        self.control.configuration.solve.enum_mode = "brave"
        with self.control.solve(assumptions=[self.holds[sentence]], yield_=True) as models:
            for model in models:
                codes = sorted(_codes(model))
        self.control.configuration.solve.enum_mode = "auto"
        return codes

    def drawn(self, sentence: int, slots: int, most: int, generator: random.Random) -> list[list[int]] | None:
        """`most` different rows, every set of rows equally likely; None if too few of the drawn combinations fit."""
        domains: list[list[int]] = [[] for _ in range(slots)]
        for code in self.brave(sentence):
            domains[code // self.classes].append(code)
        found: dict[tuple[int, ...], None] = {}
        for _ in range(_TRIES):
            row = tuple(generator.choice(domain) for domain in domains)
            literals = [self.holds[sentence], *(self.label[divmod(code, self.classes)] for code in row)]
            if row not in found and self.possible(literals):
                found[row] = None
                if len(found) == most:
                    return [list(row) for row in found]
        return None


def _codes(model: Any) -> list[int]:
    """The shown terms, each one number: slot · classes + label. Reading other symbols takes longer than solving.

    All shown terms are Clipper's own, because a theory that shows terms is refused.
    """
    return [symbol.number for symbol in model.symbols(terms=True)]


class AnswerWriter:
    """Writes the answers as frames to a stream."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def say(self, document: dict[str, Any], rows: Iterable[Sequence[int]] = ()) -> None:
        """Write a frame."""
        words, codes = json.dumps(document).encode(), b"".join(array("i", row).tobytes() for row in rows)
        self._stream.write(HEAD.pack(len(words), len(codes)) + words + codes)
        self._stream.flush()

    def answer(self, group: Group, here: dict[str, Any], job: dict[str, Any], slots: int) -> None:
        """Solve one sentence and write its rows."""
        sentence, per_sample = here["sentence"], job["per_sample"]
        if sentence not in group.holds:
            return self._found(here, [], group)
        if job["mode"] == "brave":
            return self._found(here, [[code] for code in group.brave(sentence)], group)
        most = min(_FEW * per_sample, job["budget"]) if per_sample else job["budget"]
        rows, more = group.rows(sentence, most)
        if more and (not per_sample or most <= per_sample):
            return self.say({**here, "more": True})
        if per_sample and (more or len(rows) > per_sample):
            generator = random.Random(f"{job['seed']} {here['group']} {sentence}")
            rows.sort()
            drawn = group.drawn(sentence, slots, per_sample, generator) if more else generator.sample(rows, per_sample)
            if drawn is None:
                return self.say({**here, "thin": True})
            rows = drawn
        job["budget"] -= len(rows)
        return self._found(here, sorted(rows), group)

    def _found(self, here: dict[str, Any], rows: list[list[int]], group: Group) -> None:
        contradiction = not rows and not group.possible([])
        self.say({**here, "rows": len(rows), "contradiction": contradiction}, rows)


def _text(reader: Reader, work: dict[str, Any], renamed: Sequence[str], classes: int) -> str:
    """A shape as a logic program: a line for each slot, one for the facts, one for each sentence, and the queries."""
    lines = []
    for place, (slot, atoms) in enumerate(zip(work["slots"], reader.atoms(work["slots"], renamed), strict=True)):
        start = slot["start"]
        choice = f"{{ {LABEL}({place},{start}..{start + len(atoms) - 1}) }} = 1."
        lines.append(" ".join([choice, *(f"{atom} :- {LABEL}({place},{start + i})." for i, atom in enumerate(atoms))]))
    lines.append(reader.facts(work["facts"], len(lines) + 1))
    lines += [reader.sentence(text, i, len(lines) + 1 + i) for i, text in enumerate(work["sentences"])]
    asked = f"#external {ASKED}(0..{len(work['sentences']) - 1})."
    return "\n".join([*lines, asked, f"#show S*{classes}+L : {LABEL}(S,L).", f"#project {LABEL}/2."])


def _bound(memory: int) -> None:
    """Limit the memory of this process, in bytes, if the system supports it."""
    try:
        resource = importlib.import_module("resource")
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def main() -> None:
    """Answer the job on standard input."""
    answers = AnswerWriter(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)  # printed text must not mix with the answers
    clingo = importlib.import_module("clingo")
    job = json.load(sys.stdin)
    _bound(job["memory"])
    os.chdir(os.path.dirname(job["theory"]))  # #include is relative to this folder
    reader = Reader(clingo)
    number, messages = 0, list[str]()
    try:
        renamed = reader.theory(job["theory"], job["folder"])
        for number, work in enumerate(job["groups"]):
            text = _text(reader, work, renamed, job["classes"])
            messages = []
            answers.say({"group": number, "begins": True})
            group = Group(clingo, job["theory"], text, job["classes"], messages)
            answers.say({"group": number, "grounded": True, "messages": messages})
            for sentence in range(len(work["sentences"])):
                group.control.assign_external(group.asked[sentence], True)
                answers.answer(group, {"group": number, "sentence": sentence}, job, len(work["slots"]))
                group.control.assign_external(group.asked[sentence], False)
    except RefusedError as error:
        return answers.say({"group": number, "refused": str(error), "line": error.line})
    except (RuntimeError, MemoryError) as error:
        full = isinstance(error, MemoryError) or "bad_alloc" in str(error)
        return answers.say({"group": number, "error": str(error), "full": full, "messages": messages})
    return None


if __name__ == "__main__":
    main()
