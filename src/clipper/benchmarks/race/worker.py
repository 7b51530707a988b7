"""Runs one contestant in its own process and environment: `python -m clipper.benchmarks.race.worker JOB`.

JOB is a JSON file. Standard output has one line of JSON for each measurement, then one for the result. What frameworks
print goes to standard error.
"""

from __future__ import annotations

import importlib
import os
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clipper.benchmarks.race.heat import Heat, as_line
from clipper.benchmarks.timing import peak_megabytes
from clipper.files import parsed_json
from clipper.training.environment import environment


def main(job_file: str) -> None:
    """Run the job in a file."""
    lines = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def tell(document: dict[str, Any]) -> None:
        lines.write(as_line(document) + "\n")
        lines.flush()

    torch.set_num_threads(1)
    job = parsed_json(Path(job_file).read_bytes())
    with np.load(job["data"]) as file:
        arrays = dict(file)
    module, _, name = job["function"].partition(":")
    contestant = getattr(importlib.import_module(module), name)
    for package in job["imports"]:  # the time that a framework takes to import does not count
        importlib.import_module(package)
    heat = Heat(arrays, job["network"], job["settings"], job["seed"], job["seconds"], tell)
    before = peak_megabytes()
    heat.run(contestant)
    tell(
        {
            "result": {
                "curve": heat.curve,
                "first_step": heat.first_step,
                "out_of_time": heat.out_of_time,
                "peak_megabytes": peak_megabytes(),
                "start_megabytes": before,
                "notes": heat.notes,
                "packages": {package: metadata.version(package) for package in job["packages"]},
                **environment(),
            }
        }
    )


if __name__ == "__main__":
    main(sys.argv[1])
