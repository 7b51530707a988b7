"""What two processes infer about a pool that they share is what one process infers about all of it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from clipper import Candidates, ProximityGraph, infer
from clipper.errors import InputError
from clipper.pruning import partition
from clipper.pruning.pairs import Edges
from clipper.pruning.ranks import Ranks, Shard
from tests.launch import ROOT, environment, finished, torchrun
from tests.pruning.joint_rank_cases import RANKS, cases, parts_of, told
from tests.pruning.pools import clustered

REFUSED = [
    (r"expected the same trust, seed, starts",),
    (r"expected neither previous= nor method=\"em\" with a group",),
    (r"rank 1 failed: expected known labels of their slot's kind", r"^expected known labels of their slot's kind"),
    (r"rank 1 failed: expected samples on every rank", r"^expected samples on every rank"),
    (r"rank 1 failed: expected edge targets among the 24 instances of all ranks", r"^expected edge targets among"),
    (r"expected the same tables of embeddings on every rank",),
]
"""What the first and the second rank are told of the `mistakes`, in their order."""

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="this build of torch has no gloo")


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_every_step_gives_two_processes_what_it_gives_one(tmp_path: Path) -> None:
    job = torchrun("-m", "tests.pruning.joint_rank_cases", "parts", tmp_path / "found")
    local, whole = parts_of(Ranks(), slice(0, 30))
    code, _, errors = finished(job)
    assert code == 0, errors
    results = [torch.load(tmp_path / f"found.{rank}") for rank in range(RANKS)]
    for what, wanted in local.items():
        found = torch.cat([result[0][what] for result in results])
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5, msg=lambda text, what=what: f"{what}: {text}")
    for what, wanted in whole.items():
        for _, found in results:
            torch.testing.assert_close(
                found[what], wanted, rtol=1e-4, atol=1e-5, msg=lambda text, what=what: f"{what}: {text}"
            )


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_two_processes_infer_what_one_process_infers(tmp_path: Path) -> None:
    job = torchrun("-m", "tests.pruning.joint_rank_cases", "pools", tmp_path / "found")
    expected = [(case, told(case.infer())) for case in cases()]
    code, _, errors = finished(job)
    assert code == 0, errors
    results = [torch.load(tmp_path / f"found.{rank}") for rank in range(RANKS)]
    shares = zip(*(result["found"] for result in results), strict=True)
    for (case, one), found in zip(expected, shares, strict=True):
        assert case.verdict in ("", one["verdict"]), case.name
        for share in found:
            for what in ("verdict", "namings"):
                assert share[what] == one[what], f"{what} of {case.name}"
            for what in ("energy", "figures"):
                assert share[what] == pytest.approx(one[what], rel=1e-3, abs=1e-4), f"{what} of {case.name}"
            assert (share["asked"] >= 0).all()
            assert share["traffic"] > 0
        for what in ("labels", "allowed", "edges"):
            assert torch.equal(torch.cat([share[what] for share in found]), one[what]), f"{what} of {case.name}"
        for what in ("marginals", "suspicion"):
            whole = torch.cat([share[what] for share in found])
            torch.testing.assert_close(whole, one[what], atol=1e-3, rtol=1e-3)
    for told_first, told_second, words in zip(*(result["refused"] for result in results), REFUSED, strict=True):
        assert re.search(words[0], told_first), told_first
        assert re.search(words[-1], told_second), told_second


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")
def test_a_rank_that_is_killed_ends_the_others_in_words(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.pruning.joint_rank_cases", "killed", str(tmp_path / "said")]
    jobs = [
        subprocess.Popen([*command, str(rank), str(tmp_path / "meeting")], cwd=ROOT, env=environment())
        for rank in range(RANKS)
    ]
    try:
        codes = [job.wait(timeout=120) for job in jobs]
    finally:
        for job in jobs:
            job.kill()
    assert codes == [0, -signal.SIGKILL]
    assert re.match(r"RankError: rank 0 of 2 got no answer from the others", (tmp_path / "said.0").read_text())


def test_a_group_of_one_infers_like_no_group(group: dist.ProcessGroup) -> None:
    candidates, embeddings, _ = clustered(20, slots=2, classes=3)
    alone, together = infer(candidates, embeddings), infer(candidates, embeddings, group=group)
    assert torch.equal(alone.labels, together.labels)
    assert torch.equal(alone.marginals, together.marginals)
    assert torch.equal(alone.prune().edges, together.prune().edges)
    assert alone.verification.gain == together.verification.gain


def test_what_is_no_group_is_refused() -> None:
    candidates, embeddings, _ = clustered(4, slots=2, classes=3)
    with pytest.raises(InputError, match=r"expected group to be a process group .* got 'gloo'"):
        infer(candidates, embeddings, group="gloo")  # type: ignore[arg-type]


@pytest.mark.parametrize("sizes", [(1, 2), (3, 0, 5), (40, 60), (700, 2000, 1)])
@pytest.mark.parametrize("width", [1, 33])
def test_ranks_draw_their_part_of_what_one_process_draws(
    sizes: tuple[int, ...], width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, after = torch.Generator().manual_seed(3), []
    expected = torch.randn(sum(sizes), width, generator=whole)
    after.append(torch.rand(1, generator=whole))
    monkeypatch.setattr(Ranks, "size", len(sizes))
    monkeypatch.setattr("clipper.pruning.ranks._DRAWN", 16 * 5)
    parts = []
    for rank, size in enumerate(sizes):
        monkeypatch.setattr(Ranks, "rank", rank)
        generator = torch.Generator().manual_seed(3)
        parts.append(Shard(Ranks(), sizes).normal((size, width), generator))
        after.append(torch.rand(1, generator=generator))
    assert torch.equal(torch.cat(parts), expected)
    assert len(set(map(float, after))) == 1, "and go on from where it does"


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_a_partition_is_even_and_cuts_fewer_pairs_than_chance(parts: int) -> None:
    _, embeddings, _ = clustered(100, spread=0.4)
    rank = partition(embeddings, parts)
    assert rank.unique().tolist() == list(range(parts))
    assert int(torch.bincount(rank).max() - torch.bincount(rank).min()) <= 1
    edges = Edges.of(ProximityGraph.from_embeddings(embeddings, k=4), instances=300)
    apart = float(edges.differs(rank.repeat_interleave(3)[:, None]).float().mean())
    assert apart <= 0.95 * (1 - 1 / parts)


def test_what_cannot_be_divided_is_refused() -> None:
    with pytest.raises(InputError, match=r"expected embeddings of shape \(n, m, d\) of at least 3 samples"):
        partition(torch.rand(2, 2, 4), 3)
    with pytest.raises(InputError, match=r"expected parts"):
        partition(torch.rand(2, 2, 4), 0)


def test_a_candidate_set_must_come_first_in_a_group_too(group: dist.ProcessGroup) -> None:
    with pytest.raises(InputError, match="candidates"):
        infer(torch.rand(2, 2, 4), torch.rand(2, 2, 4), group=group)  # type: ignore[type-var]
    with pytest.raises(InputError, match=r"expected embeddings of shape \(1, 2, d\)"):
        infer(Candidates.from_rule(sum, [2], 2, 3), torch.rand(2, 2, 4), group=group)
