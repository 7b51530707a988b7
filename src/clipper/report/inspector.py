"""The pruning inspector: a page that shows a sample, its neighbours, and which edge ruled out which candidate."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

from clipper.benchmarks.statistics import percent
from clipper.errors import InputError
from clipper.report.figures import reliability_figure
from clipper.report.page import write_page
from clipper.training.inspection import Inspection

_EXACT = 2**53
"""Below this, JavaScript represents all whole numbers exactly."""
_ONE_BY_ONE = (
    "Instances that are close to each other should share a label. An edge leads from an instance to a neighbour. It "
    "rules out the candidates in which the instance has a label that the neighbour cannot have. The edges that were "
    "chosen strike out these candidates."
)
_JOINTLY = (
    "Instances that are close to each other should share a label. So what is known about one sample also tells "
    "something about its neighbours, and about their neighbours. Joint inference combines all of this, and gives each "
    "candidate a probability."
)
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def write_inspector(
    inspection: Inspection, path: str | Path, title: str = "Which edges ruled out which candidates"
) -> None:
    """Write a page with the inspector of a pruning; it opens from disk and needs no network.

    Args:
        inspection: what a training run wrote, or `Inspection.of_pruning` of any pruning.
        path: the file to write; an older page is replaced.
        title: of the page.

    Raises:
        FileError: if the page cannot be written.
    """
    view = inspector_view(inspection)
    write_page(path, "inspector.html", title=title, lead=view["idea"], view=view)


def plural(noun: str) -> str:
    """The plural of the name of what a slot holds.

    Examples:
        >>> plural("image"), plural("box or pair")
        ('images', 'boxes or pairs')
    """
    return " or ".join(f"{word}es" if word.endswith(("x", "s", "ch")) else f"{word}s" for word in noun.split(" or "))


def inspector_view(inspection: Inspection, key: str = "sample") -> dict[str, Any]:
    """An inspection as values for the page's template.

    Args:
        inspection: a pruning.
        key: the page's address holds the chosen sample as `#key=number`; two inspectors on a page need two keys.

    Returns:
        The key, an explanation of pruning, notes to print above the inspector, the pictures as one PNG in base64, the
        data for the script, and the calibration of joint inference, if known.

    Raises:
        InputError: if the key is not made of letters, digits and underscores.
    """
    if not key.isidentifier():
        raise InputError(f"expected a key of letters, digits and underscores, got {key!r}")
    document = inspection.as_dict()
    sheet = document["sheet"]
    data = {
        "key": key,
        **{name: document[name] for name in ("names", "kinds", "slot", "of")},
        "slots": plural(inspection.slot),
        **{name: sheet[name] for name in ("columns", "rows")},
        "size": [sheet["width"], sheet["height"]],
        "samples": [_counted(sample) for sample in document["samples"]],
    }
    return {
        "key": key,
        "idea": _JOINTLY if any("joint" in sample for sample in inspection.samples) else _ONE_BY_ONE,
        "notes": [" ".join(inspection.notes)] if inspection.notes else [],
        "png": sheet["png"],
        "data": data,
        "calibration": _calibration(inspection),
    }


def _counted(sample: dict[str, Any]) -> dict[str, Any]:
    """A sample with counts that JavaScript can represent, and the share of its candidates that are left."""
    total, stay = sample["total"], sample["stay"]
    return sample | {"total": _count(total), "stay": _count(stay), "share": stay / total}


def _count(number: int) -> int | str:
    if number < _EXACT:
        return number
    factor, _, exponent = f"{Decimal(number):.1e}".partition("e+")
    return f"{factor}·10{exponent.translate(_RAISED)}"


def _calibration(inspection: Inspection) -> dict[str, Any] | None:
    known = inspection.calibration
    if known is None:
        return None
    return {
        "figure": reliability_figure(known),
        "summary": [
            ["images whose most probable label is right", percent(known["right"])],
            ["mean gap between the probability and how often labels are right", f"{100 * known['error']:.1f} points"],
        ],
        "kept": [[f"{float(mass):g}", percent(share)] for mass, share in known["retained"]],
    }
