"""Equation (1) and Problem 3.6 as integer programs, and the solvers that the closed forms are checked against.

The columns are I (one per candidate: it is kept) and E (one per edge: it is chosen). The paper's I′ is 1 − I and needs
no column: maximising ΣI′ is minimising ΣI. The program is built from a list of all inconsistent pairs of a candidate
and an edge, not from the bit masks of the closed forms, so that the check is independent of them.

Only this module imports HiGHS and CP-SAT. Each solver gets the whole program at once. It returns a proven optimum, or
an error is raised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clipper.candidates import Candidates
from clipper.errors import InputError, SolverError, require
from clipper.proximity import ProximityGraph

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class IntegerProgram:
    """Minimise cost · x over integers lower ≤ x ≤ upper with row_lower ≤ matrix · x ≤ row_upper; the matrix is sparse.

    Attributes:
        cost: of each column.
        lower: the least value of each column.
        upper: the greatest.
        row_lower: the least value of each row of matrix · x.
        row_upper: the greatest.
        start: where the entries of each row begin, `(rows + 1,)`.
        column: the column of each entry; every entry's coefficient is 1.
    """

    cost: Array
    lower: Array
    upper: Array
    row_lower: Array
    row_upper: Array
    start: Array
    column: Array


def integer_program(candidates: Candidates, graph: ProximityGraph, rejects: Tensor, objective: str) -> IntegerProgram:
    """The integer program of a pruning; `rejects (E, c)` as from `edge_rejects`."""
    candidate, edge = inconsistent_pairs(candidates, graph, rejects)
    omega, edges = len(candidates), len(graph)
    conflicted = np.zeros(omega, dtype=bool)
    conflicted[candidate] = True
    sizes = candidates.offsets.diff().cpu().numpy()
    sound = _rows(sizes[sizes > 0], np.arange(omega), 1.0, np.inf)  # ΣI ≥ 1 for each sample that has candidates
    pairs = np.stack([candidate, omega + edge], axis=1).ravel()
    if objective == "paper":
        blocks = [sound, _rows(np.full(len(edge), 2), pairs, 1.0, 1.0)]  # E + I = 1
    else:
        blocks = [
            sound,
            _rows(np.full(len(edge), 2), pairs, -np.inf, 1.0),  # I ≤ 1 − E
            _at_least_one(candidate, omega + edge, conflicted),  # I ≥ 1 − ΣE
        ]
    row_lower, row_upper, start, column = _stacked(blocks)
    return IntegerProgram(
        cost=np.concatenate([np.ones(omega), np.zeros(edges)]),
        lower=np.concatenate([~conflicted, np.zeros(edges)]).astype(float),  # globally consistent: I = 1
        upper=np.ones(omega + edges),
        row_lower=row_lower,
        row_upper=row_upper,
        start=start,
        column=column,
    )


def inconsistent_pairs(candidates: Candidates, graph: ProximityGraph, rejects: Tensor) -> tuple[Array, Array]:
    """All pairs of a candidate and an edge that it contradicts, sorted by candidate."""
    sample, slot = graph.source // candidates.slots, graph.source % candidates.slots
    counts = candidates.offsets.diff()[sample]  # (E,): candidates that the edge could act on
    edge = torch.repeat_interleave(counts)
    place = torch.arange(len(edge), device=edge.device) - (counts.cumsum(0) - counts)[edge]
    candidate = candidates.offsets[sample[edge]] + place
    label = candidates.labels[candidate, slot[edge]].long()
    clash = rejects[edge, label] & (label >= 0)
    candidate, edge = candidate[clash], edge[clash]
    order = candidate.argsort(stable=True)
    return candidate[order].cpu().numpy(), edge[order].cpu().numpy()


_Block = tuple[Array, Array, float, float]


def _rows(sizes: Array, column: Array, lower: float, upper: float) -> _Block:
    return sizes, column, lower, upper


def _at_least_one(candidate: Array, edge_column: Array, conflicted: Array) -> _Block:
    """For each conflicted candidate the row I + ΣE ≥ 1."""
    own = conflicted.nonzero()[0]
    rows = np.concatenate([own, candidate])
    order = np.argsort(rows, kind="stable")
    column = np.concatenate([own, edge_column])[order]
    return _rows(np.bincount(rows, minlength=len(conflicted))[own], column, 1.0, np.inf)


def _stacked(blocks: list[_Block]) -> tuple[Array, Array, Array, Array]:
    sizes = np.concatenate([block[0] for block in blocks])
    lower = np.concatenate([np.full(len(block[0]), block[2]) for block in blocks])
    upper = np.concatenate([np.full(len(block[0]), block[3]) for block in blocks])
    column = np.concatenate([block[1] for block in blocks]).astype(np.int32)
    return lower, upper, np.concatenate([[0], sizes.cumsum()]).astype(np.int32), column


def solve(program: IntegerProgram, solver: str) -> Array:
    """The optimal x of a program, as bool."""
    if solver not in SOLVERS:
        raise InputError(f'expected the solver "closed-form", {", ".join(map(repr, SOLVERS))}, got {solver!r}')
    return SOLVERS[solver](program) > 0.5


def highs(program: IntegerProgram) -> Array:
    """Solve with HiGHS."""
    highspy: Any = require("highspy", extra="solvers")
    columns, rows = len(program.cost), len(program.row_lower)
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("mip_rel_gap", 0.0)
    row_wise, minimise = int(highspy.MatrixFormat.kRowwise), int(highspy.ObjSense.kMinimize)
    solver.passModel(
        columns, rows, len(program.column), row_wise, minimise, 0.0,
        program.cost, program.lower, program.upper, program.row_lower, program.row_upper,
        program.start[:-1], program.column, np.ones(len(program.column)),
        np.full(columns, int(highspy.HighsVarType.kInteger), dtype=np.int32),
    )  # fmt: skip
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise SolverError(f"HiGHS proved no optimum: {solver.modelStatusToString(solver.getModelStatus())}")
    return np.asarray(solver.getSolution().col_value)


def cp_sat(program: IntegerProgram) -> Array:
    """Solve with CP-SAT."""
    helper: Any = require("ortools.linear_solver.python.model_builder_helper", extra="solvers")
    sparse: Any = require("scipy.sparse", extra="solvers")
    shape = (len(program.row_lower), len(program.cost))
    matrix = sparse.csr_matrix((np.ones(len(program.column)), program.column, program.start), shape=shape)
    model = helper.ModelBuilderHelper()
    model.fill_model_from_sparse_data(
        program.lower, program.upper, program.cost, program.row_lower, program.row_upper, matrix
    )
    for column in range(shape[1]):
        model.set_var_integrality(column, True)
    solver = helper.ModelSolverHelper("sat")
    solver.enable_output(False)
    solver.solve(model)
    if solver.status() != helper.SolveStatus.OPTIMAL:
        raise SolverError(f"CP-SAT proved no optimum: {solver.status_string() or solver.status()}")
    return np.asarray(solver.variable_values())


SOLVERS: dict[str, Callable[[IntegerProgram], Array]] = {"highs": highs, "cp-sat": cp_sat}
