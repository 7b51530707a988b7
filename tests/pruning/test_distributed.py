"""What two processes keep of a batch that they share is what one process keeps of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from clipper import Candidates, Clipper, Lattice
from clipper.candidates.rules import SUM
from clipper.errors import InputError
from clipper.proximity import Pool
from clipper.pruning.distributed import pack_bits, unpack_bits
from clipper.pruning.ranks import Ranks
from tests.launch import finished, torchrun
from tests.pruning.distributed_cases import RANKS, cases, told

REFUSED = [
    (r"^rank 1 failed: expected embeddings of shape \(3, 2, d\)", r"^expected embeddings of shape \(3, 2, d\)"),
    (r"expected embeddings of the same length and type on every rank",),
    (r"expected the same slots on every rank, got 2 and 3; build the candidates of all samples on every rank",),
    (r"expected the candidates of all ranks to be parts of one Lattice",),
    (r"expected finite embeddings, got NaN",),
]
"""What the first and the second rank are told of the `mistakes`, in their order."""

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="this build of torch has no gloo")


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_two_processes_keep_what_one_process_keeps(tmp_path: Path) -> None:
    job = torchrun("-m", "tests.pruning.distributed_cases", tmp_path / "found")
    expected = [(case.name, told(case.clip.prune(case.candidates, case.embeddings, seed=7))) for case in cases()]
    code, _, errors = finished(job)
    assert code == 0, errors
    results = [torch.load(tmp_path / f"found.{rank}") for rank in range(RANKS)]
    shares = zip(*(result["found"] for result in results), strict=True)
    for (name, one), found in zip(expected, shares, strict=True):
        for what, whole in one.items():
            assert torch.equal(torch.cat([share[what] for share in found]), whole), f"{what} of {name}"
    for told_first, told_second, expected_words in zip(
        *(result["refused"] for result in results), REFUSED, strict=True
    ):
        assert re.search(expected_words[0], told_first), told_first
        assert re.search(expected_words[-1], told_second), told_second


def test_a_group_of_one_prunes_like_no_group(group: dist.ProcessGroup) -> None:
    embeddings = torch.rand(5, 2, 4, generator=torch.Generator().manual_seed(0))
    for candidates in (
        Candidates.from_rule(sum, [3, 4, 9, 9, 12], 2, 10),
        Lattice.from_rule(*SUM, targets=[3, 4, 9, 9, 12], slots=2, classes=10),
    ):
        for clip in (Clipper(k=2), Clipper(k=2, mutual=True), Clipper(objective="random")):
            alone, together = clip.prune(candidates, embeddings), clip.prune(candidates, embeddings, group=group)
            assert torch.equal(alone.allowed, together.allowed)
            assert clip(candidates, embeddings, group=group).counts == alone.candidates.counts


def test_a_rank_without_samples_loses_nothing(group: dist.ProcessGroup) -> None:
    candidates = Candidates.from_rule(sum, [3, 4], 2, 10).batch([])
    pruning = Clipper().prune(candidates, torch.rand(0, 2, 4), group=group)
    assert (pruning.candidates.samples, pruning.discarded, pruning.retained) == (0, 0, 1.0)


def test_what_is_no_group_is_refused() -> None:
    candidates = Candidates.from_rule(sum, [3, 4], 2, 10)
    with pytest.raises(InputError, match=r"expected group to be a process group .* got 'gloo'"):
        Clipper().prune(candidates, torch.rand(2, 2, 4), group="gloo")  # type: ignore[arg-type]


def test_a_group_needs_no_pool(group: dist.ProcessGroup) -> None:
    candidates, embeddings = Candidates.from_rule(sum, [3, 4], 2, 10), torch.rand(2, 2, 4)
    with pytest.raises(InputError, match="expected no pool with a group"):
        Clipper().prune(candidates, embeddings, pool=Pool(embeddings), group=group)


def test_wrong_embeddings_are_named_in_a_group_too(group: dist.ProcessGroup) -> None:
    candidates = Candidates.from_rule(sum, [3, 4], 2, 10)
    with pytest.raises(InputError, match=r"expected embeddings of shape \(2, 2, d\)"):
        Clipper().prune(candidates, torch.rand(3, 2, 4), group=group)


@pytest.mark.parametrize("samples", [0, 1, 2, 5, 64])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_shares_are_even_and_follow_one_another(samples: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for rank in range(size):
        monkeypatch.setattr(Ranks, "rank", rank)
        monkeypatch.setattr(Ranks, "size", size)
        found.append(Ranks().share(torch.arange(samples)))
    assert torch.cat(found).tolist() == list(range(samples))
    assert [len(share) for share in found] == Ranks().sizes(samples)
    assert max(map(len, found)) - min(map(len, found)) <= 1


@pytest.mark.parametrize("width", [1, 7, 8, 9, 30, 1000])
def test_packed_bits_come_back(width: int) -> None:
    bits = torch.rand(5, width, generator=torch.Generator().manual_seed(width)) < 0.5
    assert pack_bits(bits).shape == (5, -(-width // 8))
    assert torch.equal(unpack_bits(pack_bits(bits), width), bits)
