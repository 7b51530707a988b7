"""Runs `clipper` commands one after the other, as JSON lines on standard input tell; see `attack.Clippers`."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import os
import sys
import traceback
from typing import Any


def _run(job: dict[str, Any]) -> dict[str, Any]:
    import importlib

    app = importlib.import_module("clipper.cli")
    out, err = io.StringIO(), io.StringIO()
    code = 0
    os.chdir(job["cwd"])
    before = dict(os.environ)
    os.environ.update(job["env"])
    sys.argv = ["clipper", *job["argv"]]
    faulthandler.dump_traceback_later(job["limit"], exit=True)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            app.main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            code = 1
            traceback.print_exc()
    faulthandler.cancel_dump_traceback_later()
    os.environ.clear()
    os.environ.update(before)
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


def main() -> None:
    """Answer until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever libraries print must not mix with the answers
    for line in sys.stdin:
        answers.write(json.dumps(_run(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
