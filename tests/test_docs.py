"""Every Python block in the README and the docs runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_on_a_page_runs(page: Path) -> None:
    names = readers_things()
    before = [parameter.clone() for parameter in names["network"].parameters()]
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL):
        exec(compile(block, page.name, "exec"), names)
    if page.name == "README.md":
        after = list(names["network"].parameters())
        assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True)), "the loop trains"
