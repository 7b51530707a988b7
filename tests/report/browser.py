"""A browser to test pages in: Chromium, driven over chromedriver's own HTTP interface, without a client library."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
KEYS = {"ArrowRight": "\ue014", "ArrowLeft": "\ue012", "ArrowDown": "\ue015", "Tab": "\ue004", "Enter": "\ue007"}
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the WebDriver standard's name for a reference to an element
_DIRECT = build_opener(ProxyHandler({}))  # the driver runs here; a proxy would only be in the way


class Browser:
    """One window."""

    def __init__(self, port: int) -> None:
        options = {"binary": CHROMIUM, "args": [*FLAGS, "--window-size=1200,1400"]}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        self.address = f"http://127.0.0.1:{port}/session"
        session = self._ask("POST", "", {"capabilities": {"alwaysMatch": wanted}})
        self.address += "/" + session["sessionId"]

    def open(self, address: str) -> None:
        self._ask("POST", "/url", {"url": "about:blank"})  # or a new fragment would not load the page anew
        self._ask("POST", "/url", {"url": address})

    def run(self, script: str, *arguments: Any) -> Any:
        """What a function body returns."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def run_later(self, script: str, *arguments: Any) -> Any:
        """What a function body hands to its last argument, sooner or later."""
        return self._ask("POST", "/execute/async", {"script": script, "args": list(arguments)})

    def click(self, selector: str) -> None:
        self._ask("POST", f"/element/{self._find(selector)}/click", {})

    def type(self, selector: str, text: str) -> None:
        self._ask("POST", f"/element/{self._find(selector)}/value", {"text": text})

    def press(self, key: str) -> None:
        """Press a key, wherever the focus is."""
        keys = [{"type": kind, "value": KEYS[key]} for kind in ("keyDown", "keyUp")]
        self._ask("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": keys}]})

    def point(self, selector: str) -> None:
        """Move the mouse over an element."""
        where = {_ELEMENT: self._find(selector)}
        self.run("arguments[0].scrollIntoView({ block: 'center' })", where)
        move = {"type": "pointerMove", "duration": 0, "origin": where, "x": 0, "y": 0}
        self._ask("POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": [move]}]})

    def messages(self) -> list[str]:
        """What the console has said since it was asked last."""
        return [entry["message"] for entry in self._ask("POST", "/se/log", {"type": "browser"})]

    def close(self) -> None:
        self._ask("DELETE", "", None)

    def _find(self, selector: str) -> str:
        found = self._ask("POST", "/element", {"using": "css selector", "value": selector})
        return str(found[_ELEMENT])

    def _ask(self, method: str, path: str, body: Any) -> Any:
        content = None if body is None else json.dumps(body).encode()
        request = Request(self.address + path, content, {"Content-Type": "application/json"}, method=method)
        with _DIRECT.open(request, timeout=60) as answer:
            return json.load(answer)["value"]


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser that is gone when the block ends."""
    with (folder / "driver.log").open("w+") as log:
        driver = subprocess.Popen([str(DRIVER), "--port=0"], stdout=subprocess.PIPE, stderr=log, text=True)
        assert driver.stdout is not None
        try:
            port = next(int(found[1]) for line in driver.stdout if (found := re.search(r"on port (\d+)\.", line)))
            window = Browser(port)
            try:
                yield window
            finally:
                window.close()
        finally:
            driver.terminate()
            driver.wait(timeout=20)
            driver.stdout.close()
