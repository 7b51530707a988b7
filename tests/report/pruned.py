"""Pruned samples to look at, and the same in the paper's own notation."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from clipper import Candidates, ProximityGraph, prune
from clipper.benchmarks.data.images import digits
from clipper.benchmarks.drawing import draw
from clipper.benchmarks.max import MAX_RULE
from clipper.benchmarks.sum import SUM_RULE
from clipper.pruning import Pruning
from clipper.report import write_inspector
from clipper.report.inspector import inspector_view
from clipper.report.page import templates
from clipper.training import Inspection, Samples
from tests.oracles import Problem

SEVERAL = """{% extends "base.html" %}{% from "parts.html" import inspector %}
{% block content %}{% for view in views %}{{ inspector(view) }}{% endfor %}{% endblock %}"""


@dataclass(frozen=True)
class Pruned:
    task: Samples
    graph: ProximityGraph
    pruning: Pruning[Candidates]

    def inspection(self, **options: Any) -> Inspection:
        given = {"gold": self.task.gold, "targets": self.task.targets} | options
        return Inspection.of_pruning(self.task.inputs, self.pruning, self.graph, **given)


def pruned_digits(rule: str = "sum", k: int = 1, objective: Any = "exact", samples: int = 20, slots: int = 3) -> Pruned:
    task = draw(digits(), {"sum": SUM_RULE, "max": MAX_RULE}[rule], samples=samples, slots=slots)
    graph = ProximityGraph.from_embeddings(task.inputs.flatten(2), k=k)
    count = 100 if objective == "random" else None
    return Pruned(task, graph, prune(task.candidates, graph, objective, count=count))


def problem_of(pruned: Pruned) -> Problem:
    candidates = pruned.task.candidates
    rows = [tuple(row) for row in candidates.labels.tolist()]
    ends = candidates.offsets.tolist()
    samples = [rows[begin:end] for begin, end in pairwise(ends)]
    pairs = zip(pruned.graph.source.tolist(), pruned.graph.target.tolist(), strict=True)
    slots = candidates.slots
    return Problem(samples, [(divmod(source, slots), divmod(target, slots)) for source, target in pairs])


def page_of(folder: Path, inspection: Inspection) -> Path:
    """The page of an inspection that went through its file."""
    inspection.write(folder / "inspection.json")
    write_inspector(Inspection.read(folder / "inspection.json"), folder / "index.html")
    return folder / "index.html"


def page_of_several(folder: Path, inspections: dict[str, Inspection]) -> Path:
    """A page with an inspector for each key."""
    views = [inspector_view(inspection, key) for key, inspection in inspections.items()]
    page = folder / "index.html"
    page.write_text(templates().from_string(SEVERAL).render(title="Pruned", lead="", views=views), encoding="utf-8")
    return page


def data_of(page: Path) -> dict[str, Any]:
    """What the page's script reads."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r'<script type="application/json">(.*?)</script>', text, flags=re.DOTALL)
    assert len(found) == 1
    data: dict[str, Any] = json.loads(found[0])
    return data
