"""review: a local web page that asks for the labels that would help most, and labels again with the answers.

The server sends one HTML file. All other responses are JSON or images.
"""

from __future__ import annotations

import csv
import io
import secrets
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from clipper.errors import FileError, InputError, require
from clipper.files import append, checked_path, read_text
from clipper.labelling.label import Labels, is_reliable
from clipper.labelling.label_files import format_of, read_labels
from clipper.labelling.label_job import LabelJob, LabelPool
from clipper.labelling.sample_table import WRONG_TARGET, mistakable, read_answers

HOST = "127.0.0.1"
"""The only address that the server listens on: other machines cannot reach it."""
AFTER = 3
"""Number of answers after which the samples are labelled again."""


@dataclass
class Review:
    """The questions about a pool and the answers so far. Each answer is on disk before the next question is asked.

    Attributes:
        pool: the samples.
        answers: the CSV file that answers are appended to; `clipper label --known` reads it.
        token: the secret that every request must contain.
        answered: how many answers were given since the review was started.
    """

    pool: LabelPool
    answers: Path
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    answered: int = 0

    @classmethod
    def of(cls, labels: str | Path, answers: str | Path | None = None) -> Review:
        """The review of a file of labels, Parquet or Arrow.

        Args:
            labels: a file that `clipper label` wrote.
            answers: the file to write answers to; `labels.answers.csv` beside the labels if not given. Answers that it
                already contains are used.

        Raises:
            FileError: if a file is missing or damaged.
            InputError: if the labels do not say where they come from.
        """
        path = checked_path(labels)
        _, about = read_labels(path)
        job = LabelJob.from_dict(about.get("job", {}), path)
        place = path.with_name(f"{path.stem}.answers.csv") if answers is None else checked_path(answers)
        if format_of(place) != "csv":
            raise InputError(f"expected a CSV file of answers, which lines can be added to, got {place.name!r}")
        review = cls(LabelPool.read(job), place)
        if not place.exists():
            names, slots = review.pool.label_names, review.pool.table.slots if review.pool.table is not None else ()
            by_name = names is not None or mistakable(slots) is not None
            append(place, ",".join(["sample", "slot", "label", *["name"] * by_name]).encode())
        review._read()
        return review

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._embeddings = self.pool.embeddings()
        self._labels: Labels | None = None
        self._running: threading.Thread | None = None
        self._fresh = 0
        self._skipped: set[tuple[int, int]] = set()
        self._error = ""

    def _read(self) -> None:
        """Read the answers that the file already contains."""
        pool = self.pool
        m = pool.candidates.slots
        slots = pool.table.slots if pool.table is not None else [str(j) for j in range(m)]
        lengths = pool.candidates.lengths.tolist()
        self._slots = list(slots)
        self._known, self._wrong = read_answers(
            self.answers, lengths, self._slots, pool.candidates.classes, pool.label_names
        )
        head = read_text(self.answers, "the answers").removeprefix("\ufeff").partition("\n")[0].rstrip("\r")
        self._delimiter = max(",;\t", key=head.count)
        self._columns = [name.strip() for name in next(csv.reader([head], delimiter=self._delimiter))]

    @property
    def running(self) -> bool:
        """Whether the samples are being labelled in the background."""
        return self._running is not None and self._running.is_alive()

    def infer(self) -> None:
        """Label the samples again with all answers so far.

        Raises:
            InputError: a known label is in no candidate of its sample, and the targets are known to be right.
        """
        with self._lock:
            known, wrong, previous = self._known.clone(), self._wrong.clone(), self._labels
        found = self.pool.labels(self._embeddings, known=known, wrong_targets=wrong, previous=previous)
        with self._lock:
            self._labels, self._error = found, ""

    def _infer_in_background(self) -> None:
        try:
            self.infer()
        except Exception as error:  # of any kind: the page shows it and still accepts answers
            with self._lock:
                self._error = f"Labelling with your answers failed ({error}). The answers are kept."

    def state(self) -> dict[str, Any]:
        """What the page shows: the next question and the state of the review."""
        with self._lock:
            labels = self._labels
            common = {"answered": self.answered, "running": self.running, "error": self._error, "after": AFTER}
            if labels is None:
                return common | {"verdict": None, "expected": None, "question": None}
            return common | {
                "verdict": labels.verdict,
                "expected": labels.expected_accuracy if is_reliable(labels.verdict) else None,
                "question": self._question(labels),
            }

    def answer(self, sample: int, slot: int, label: int | None) -> None:
        """Save a label to disk, or that the target is wrong.

        Args:
            sample: the number of the sample.
            slot: the number of the slot.
            label: the label; None if the target of the sample is wrong.

        Raises:
            InputError: if there is no such instance or label.
        """
        self._check(sample, slot)
        if label is not None and not 0 <= label < self.pool.candidates.classes:
            raise InputError(f"expected a label of 0 … {self.pool.candidates.classes - 1}, got {label}")
        names = self.pool.label_names
        cells: dict[str, Any] = {"sample": sample, "slot": slot, "label": label}
        if label is None:
            cells |= {"slot": "", "label": WRONG_TARGET}
        elif names:
            cells["name"] = names[label]
        text = io.StringIO()
        csv.writer(text, delimiter=self._delimiter, lineterminator="").writerow(cells.get(c, "") for c in self._columns)
        with self._lock:
            append(self.answers, text.getvalue().encode())
            if label is None:
                self._wrong[sample] = True
            else:
                self._known[sample, slot] = label
            self.answered += 1
            self._fresh += 1
        self._infer_again()

    def skip(self, sample: int, slot: int) -> None:
        """Do not ask about this instance again in this review.

        Args:
            sample: the number of the sample.
            slot: the number of the slot.

        Raises:
            InputError: if there is no such instance.
        """
        self._check(sample, slot)
        with self._lock:
            self._skipped.add((sample, slot))

    def _check(self, sample: int, slot: int) -> None:
        lengths = self.pool.candidates.lengths
        if not (0 <= sample < len(lengths) and 0 <= slot < int(lengths[sample])):
            raise InputError(f"there is no slot {slot} of sample {sample}")

    def _infer_again(self) -> None:
        """After a few answers, label again in the background; the page asks the next questions meanwhile."""
        with self._lock:
            if self.running or self._fresh < AFTER:
                return
            self._fresh = 0
            self._running = threading.Thread(target=self._infer_in_background, daemon=True)
            self._running.start()

    def _question(self, labels: Labels) -> dict[str, Any] | None:
        """The instance whose label would help most, among those that were not asked yet."""
        posterior, m = labels.posterior, self.pool.candidates.slots
        already_asked = int((self._known >= 0).sum()) + int(self._wrong.sum()) * m + len(self._skipped)
        for instance in posterior.ask(already_asked + 1).tolist():
            sample, slot = divmod(instance, m)
            asked = int(self._known[sample, slot]) >= 0 or bool(self._wrong[sample]) or (sample, slot) in self._skipped
            if not asked:
                return self._about(labels, sample, slot)
        return None

    def _about(self, labels: Labels, sample: int, slot: int) -> dict[str, Any]:
        posterior, pool = labels.posterior, self.pool
        shares = posterior.marginals[sample, slot]
        names = pool.label_names or [str(label) for label in range(pool.candidates.classes)]
        own = pool.table
        return {
            "sample": sample,
            "slot": slot,
            "place": f"sample {sample if own is None or own.ids is None else own.ids[sample]}",
            "target": pool.targets[sample] if pool.targets else "",
            "pictures": pool.images is not None,
            "inputs": [] if own is None else own.cells[sample],
            "slots": int(pool.candidates.lengths[sample]),
            "labels": [
                {"label": label, "name": names[label], "key": key_of(label), "share": float(shares[label])}
                for label in range(pool.candidates.classes)
            ],
        }

    def picture(self, sample: int, slot: int) -> bytes:
        """The image of an instance as PNG.

        Args:
            sample: the number of the sample.
            slot: the number of the slot.

        Raises:
            InputError: if there is no such instance, or there are no images.
            MissingExtraError: Pillow is not installed.
        """
        self._check(sample, slot)
        if self.pool.images is None:
            raise InputError("there are no images, only embeddings")
        pillow: Any = require("PIL.Image", extra="review")
        buffer = io.BytesIO()
        number = int(self.pool.place[sample, slot])
        pixels = self.pool.images.load([number])[0].mul(255).round().to(torch.uint8).permute(1, 2, 0).numpy()
        pillow.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(buffer, "PNG")
        return buffer.getvalue()


def key_of(label: int) -> str:
    """The key on the keyboard that answers with this label: a digit, or a letter from label 10 on.

    Examples:
        >>> key_of(3), key_of(10), key_of(99)
        ('3', 'a', '')
    """
    letters = "abcdefghijklmnopqrtuvyz"  # without s (skip), w (wrong) and x
    return str(label) if label < 10 else letters[label - 10] if label - 10 < len(letters) else ""


def application(review: Review, page: str) -> Any:
    """The web application (ASGI): the page at `/`, and JSON and images below it. Requests without the token get 403.

    Args:
        review: the questions and answers.
        page: the page, in HTML.

    Raises:
        MissingExtraError: Starlette is not installed.
    """
    require("starlette", extra="review")
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
    from starlette.routing import Route

    own = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY"}

    def allowed(request: Request) -> bool:
        host = request.headers.get("host", "").rpartition(":")[0]
        given = request.query_params.get("token", "")
        # Another site may let its own domain name point to 127.0.0.1 (DNS rebinding); the Host header shows that.
        return host in (HOST, "localhost") and secrets.compare_digest(given.encode(), review.token.encode())

    def in_words(handle: Any) -> Any:
        async def run(request: Request) -> Response:
            try:
                answer: Response = await handle(request)
            except (InputError, FileError, ValueError, KeyError, TypeError) as error:
                answer = JSONResponse({"error": str(error)}, 400)
            answer.headers.update(own)
            return answer

        return run

    async def home(request: Request) -> Response:
        del request
        return HTMLResponse(page)

    async def state(request: Request) -> Response:
        del request
        return JSONResponse(await run_in_threadpool(review.state))

    async def answer(request: Request) -> Response:
        sent = await request.json()
        sample, slot = int(sent["sample"]), int(sent["slot"])
        if sent["action"] == "skip":
            review.skip(sample, slot)
        else:
            label = None if sent["action"] == "wrong" else int(sent["label"])
            await run_in_threadpool(review.answer, sample, slot, label)
        return JSONResponse(await run_in_threadpool(review.state))

    async def picture(request: Request) -> Response:
        sample, slot = int(request.query_params["sample"]), int(request.query_params["slot"])
        return Response(await run_in_threadpool(review.picture, sample, slot), media_type="image/png")

    routes = [
        Route("/", in_words(home)),
        Route("/state", in_words(state)),
        Route("/answer", in_words(answer), methods=["POST"]),
        Route("/picture", in_words(picture)),
    ]
    inner = Starlette(routes=routes)

    async def guard(scope: Any, receive: Any, send: Any) -> None:
        """Refuse every request without the token, also of paths that do not exist."""
        if scope["type"] == "http" and not allowed(Request(scope)):
            refusal = PlainTextResponse("This page needs the link that clipper review printed.", 403, headers=own)
            await refusal(scope, receive, send)
        else:
            await inner(scope, receive, send)

    return guard


def serve(review: Review, page: str, port: int = 0, ready: Any = lambda _: None) -> None:
    """Serve the review to this machine only, until Ctrl-C.

    Args:
        review: the questions and answers.
        page: the page, in HTML.
        port: the port to listen on; 0 for any free port.
        ready: called with the link when the server accepts connections.

    Raises:
        FileError: if the port is in use or not allowed.
        MissingExtraError: Starlette or uvicorn is not installed.
    """
    import socket

    uvicorn = require("uvicorn", extra="review")
    app = application(review, page)
    with socket.socket() as listening:
        try:
            listening.bind((HOST, port))
        except OSError as error:
            raise FileError(f"cannot listen at {HOST}:{port} ({error.strerror}); choose another --port") from error
        listening.listen()
        ready(f"http://{HOST}:{listening.getsockname()[1]}/?token={review.token}")
        config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off")
        uvicorn.Server(config).run(sockets=[listening])
