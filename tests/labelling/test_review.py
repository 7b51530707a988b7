"""clipper review: questions in a browser, answers on disk, better labels."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest
import torch

from clipper.errors import FileError, InputError
from clipper.labelling.label_job import LabelJob, label_files
from clipper.labelling.review import HOST, Review, key_of
from tests.labelling.pools import digits, write_receipts
from tests.launch import COMMAND
from tests.report.browser import browser, needs_browser

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")


@pytest.fixture
def differences(tmp_path: Path) -> tuple[LabelJob, torch.Tensor]:
    """Pairs of digits of which |a − b| is known: every digit could as well be nine minus it."""
    images, gold = digits(150, 2)
    path = write_receipts(tmp_path, images, (gold[:, 0] - gold[:, 1]).abs().tolist())
    (tmp_path / "rules.py").write_text("def difference(labels):\n    return abs(labels[0] - labels[1])\n")
    rule = f"{tmp_path / 'rules.py'}:difference"
    job = LabelJob(path, tmp_path / "labels.parquet", rule=rule, classes=10, images=tmp_path / "scans")
    label_files(job).write(job.output)
    return job, gold


@contextmanager
def reviewing(labels: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The link of a running review."""
    process = subprocess.Popen(
        [*COMMAND, "review", str(labels), "--no-open"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "http://" in line, process.communicate(timeout=30)[1]
        yield "http://" + line.partition("http://")[2].strip(), process
    finally:
        process.kill()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        process.wait()


def asked(link: str, place: str, token: str | None = None, host: str | None = None, body: bytes | None = None) -> int:
    """The status of a request."""
    parts = urlsplit(link)
    query = "" if token is None else f"?token={token}"
    request = Request(f"http://{parts.netloc}{place}{query}", data=body, headers={"Host": host} if host else {})
    for _ in range(100):
        try:
            with urlopen(request, timeout=10) as answer:
                return int(answer.status)
        except HTTPError as error:
            return error.code
        except OSError:  # not listening yet
            time.sleep(0.05)
    raise AssertionError("nobody answers")


@needs_browser
@pytest.mark.slow
def test_ten_answers_by_keyboard_alone_mend_a_pool_whose_names_are_open(
    differences: tuple[LabelJob, torch.Tensor],
) -> None:
    job, gold = differences
    before = label_files(job)
    assert before.verdict == "ambiguous"
    assert before.expected_accuracy < 0.6
    with reviewing(job.output) as (link, process), browser() as window:
        assert asked(link, "/", link.rpartition("=")[2]) == 200
        window.open(link)
        for number in range(10):
            assert window.sees("return document.body.dataset.answered", str(number))
            assert window.sees("return document.body.dataset.running", "false", patience=60)
            sample, slot = map(int, window.run("return document.body.dataset.question").split(","))
            window.press_text(str(int(gold[sample, slot])))
        assert window.sees("return document.body.dataset.answered", "10")
        assert float(window.run("return document.body.dataset.expected")) > 0.95  # as it stands on the screen
        assert window.messages() == []
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    answers = job.output.with_name("labels.answers.csv")
    assert f"--known {answers}" in said
    assert len(answers.read_text().splitlines()) == 11
    after = label_files(replace(job, known=answers))
    assert after.verdict == "joint"
    assert (after.posterior.labels == gold).float().mean() >= 0.95


@pytest.mark.slow
def test_only_this_machine_and_only_the_link_get_in(differences: tuple[LabelJob, torch.Tensor]) -> None:
    job, _ = differences
    answers = job.output.with_name("labels.answers.csv")
    with reviewing(job.output) as (link, _):
        token, port = link.rpartition("=")[2], urlsplit(link).port
        assert urlsplit(link).hostname == HOST
        assert asked(link, "/state", token) == 200
        body = json.dumps({"sample": 0, "slot": 0, "action": "label", "label": 1}).encode()
        for place, sent in (("/", None), ("/state", None), ("/picture", None), ("/nothing", None), ("/answer", body)):
            assert asked(link, place, None, body=sent) == 403
            assert asked(link, place, "guess", body=sent) == 403
        assert asked(link, "/state", token, host="evil.example:80") == 403  # a name of somebody else's
        assert answers.read_text() == "sample,slot,label\n"
        wrong = json.dumps({"sample": 999, "slot": 0, "action": "label", "label": 1}).encode()
        assert asked(link, "/answer", token, body=wrong) == 400
        for table, own in (("tcp", "0100007F"), ("tcp6", None)):
            listening = Path("/proc/net") / table
            if listening.exists():
                rows = [line.split() for line in listening.read_text().splitlines()[1:]]
                bound = {row[1] for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")}
                assert bound == ({f"{own}:{port:04X}"} if own else set())


def test_answers_are_on_disk_at_once_and_taken_up_again(differences: tuple[LabelJob, torch.Tensor]) -> None:
    job, _ = differences
    review = Review.of(job.output)
    review.infer()
    first = review.state()["question"]
    review.answer(first["sample"], first["slot"], 4)
    line = f"{first['sample']},{first['slot']},4"
    assert review.answers.read_text().splitlines() == ["sample,slot,label", line]
    again = Review.of(job.output)
    again.infer()
    second = again.state()["question"]
    assert (second["sample"], second["slot"]) != (first["sample"], first["slot"])
    again.skip(second["sample"], second["slot"])
    third = again.state()["question"]
    assert (third["sample"], third["slot"]) not in [(q["sample"], q["slot"]) for q in (first, second)]
    again.answer(third["sample"], third["slot"], None)
    assert again.answers.read_text().splitlines()[-1] == f"{third['sample']},,wrong target"
    assert again.state()["question"]["sample"] != third["sample"]


@pytest.mark.slow
def test_a_review_ends_at_once_while_it_labels_again(differences: tuple[LabelJob, torch.Tensor]) -> None:
    job, gold = differences
    with reviewing(job.output) as (link, process):
        token = urlsplit(link).query.removeprefix("token=")
        for sample in range(3):
            sent = {"sample": sample, "slot": 0, "action": "label", "label": int(gold[sample, 0])}
            assert asked(link, "/answer", token, body=json.dumps(sent).encode()) == 200
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert "terminate called" not in errors


def test_answers_of_several_requests_at_once_are_all_kept(differences: tuple[LabelJob, torch.Tensor]) -> None:
    job, _ = differences
    review = Review.of(job.output)
    threads = [threading.Thread(target=review.answer, args=(i, 0, 1)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(review.answers.read_text().splitlines()[1:]) == ["0,0,1", "1,0,1"]


def test_wrong_answers_and_files_are_refused_in_words(
    differences: tuple[LabelJob, torch.Tensor], tmp_path: Path
) -> None:
    job, _ = differences
    review = Review.of(job.output)
    for arguments in ((0, 2, 1), (-1, 0, 1), (150, 0, 1), (0, 0, 10)):
        with pytest.raises(InputError):
            review.answer(*arguments)
    assert review.answers.read_text() == "sample,slot,label\n"
    with pytest.raises(InputError, match=r"-o labels\.parquet"):
        Review.of(tmp_path / "labels.csv")
    job.samples.unlink()
    with pytest.raises(FileError, match="no file"):
        Review.of(job.output)


def test_every_answer_has_a_key_of_its_own() -> None:
    keys = [key_of(label) for label in range(33)]
    assert keys[:10] == list("0123456789")
    assert len(set(keys)) == 33
    assert not set(keys) & {"s", "w"}
    assert key_of(40) == ""
