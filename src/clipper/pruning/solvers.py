"""HiGHS and CP-SAT: the oracles of the closed forms, each given the whole program in one piece.

The only importer of either. A solver answers with a proven optimum or raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from clipper.errors import InputError, SolverError, require
from clipper.pruning.program import Array, Program


def solve(program: Program, solver: str) -> Array:
    """The optimal x of a program, as bool."""
    if solver not in SOLVERS:
        raise InputError(f'expected the solver "closed-form", {", ".join(map(repr, SOLVERS))}, got {solver!r}')
    return SOLVERS[solver](program) > 0.5


def highs(program: Program) -> Array:
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


def cp_sat(program: Program) -> Array:
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


SOLVERS: dict[str, Callable[[Program], Array]] = {"highs": highs, "cp-sat": cp_sat}
