"""A browser to test pages in: headless Chromium by selenium."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
try:
    from selenium import webdriver
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.remote.webelement import WebElement

    SELENIUM = True
except ImportError:
    SELENIUM = False
needs_browser = pytest.mark.skipif(
    not (SELENIUM and CHROMIUM and DRIVER),
    reason="no selenium, Chromium or its driver here: pip install selenium; apt-get install chromium chromium-driver",
)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


class Browser:
    """One window."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, address: str) -> None:
        self.driver.get("about:blank")  # or a new fragment would not load the page anew
        self.driver.get(address)

    def run(self, script: str, *arguments: Any) -> Any:
        """What a function body returns."""
        return self.driver.execute_script(script, *arguments)

    def run_later(self, script: str, *arguments: Any) -> Any:
        """What a function body hands to its last argument, sooner or later."""
        return self.driver.execute_async_script(script, *arguments)

    def sees(self, script: str, expected: Any, patience: float = 10.0) -> bool:
        """Whether a function body returns this, sooner or later: a page answers to a click when it gets to it."""
        end = time.monotonic() + patience
        while self.run(script) != expected:
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def click(self, selector: str) -> None:
        self._find(selector).click()

    def type(self, selector: str, text: str) -> None:
        self._find(selector).send_keys(text)

    def press(self, key: str) -> None:
        """Press a key, wherever the focus is; a name of `selenium.webdriver.Keys`."""
        ActionChains(self.driver).send_keys(getattr(Keys, key)).perform()

    def press_text(self, text: str) -> None:
        """Press the keys of some letters or digits, wherever the focus is."""
        ActionChains(self.driver).send_keys(text).perform()

    def point(self, selector: str) -> None:
        """Move the mouse over an element."""
        found = self._find(selector)
        self.run("arguments[0].scrollIntoView({ block: 'center' })", found)
        ActionChains(self.driver, duration=0).move_to_element(found).perform()

    def resize(self, width: int, height: int) -> None:
        """Give the page a screen of this size, in pixels."""
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)

    def prefer(self, scheme: str) -> None:
        """Prefer "light" or "dark" pages."""
        wanted = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", wanted)

    def picture(self, path: Path) -> None:
        """The page as it looks, as a PNG file."""
        assert self.driver.save_screenshot(str(path))

    def messages(self) -> list[str]:
        """What the console has said since it was asked last."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def _find(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser that is gone when the block ends."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, "--window-size=1200,1400"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(str(DRIVER)))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
