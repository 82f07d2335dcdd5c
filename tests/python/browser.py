"""Headless Chromium for the tests of web pages: Debian's chromium and chromium-driver, driven by selenium."""
import base64
import shutil
import time

import pytest
from conftest import PATIENCE

webdriver = pytest.importorskip("selenium.webdriver", reason="there is no selenium (pip)")
from selenium.webdriver.chrome.service import Service  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
needs_chromium = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="there is no chromium or no chromium-driver")


class Browser:
    """One window of a browser without a screen."""

    def __init__(self):
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                     "--no-first-run", "--disable-background-networking"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(service=Service(DRIVER), options=options)
        self.driver.set_script_timeout(PATIENCE)

    def close(self):
        self.driver.quit()

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def size(self, width, height=900, is_dark=False):
        """The window's width in CSS pixels, and the system's theme."""
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}]})

    def open(self, url):
        self.driver.get("about:blank")  # a link that differs in its fragment alone would not load the page again
        self.driver.get(url)

    def wait(self, condition, seconds=PATIENCE):
        """Until a JavaScript expression is true; its value."""
        end = time.monotonic() + seconds
        while True:
            value = self.run(f"return {condition}")
            if value:
                return value
            assert time.monotonic() < end, f"never true in {seconds} s: {condition}"
            time.sleep(0.05)

    def complaints(self):
        """What pages have written to the console since the last call: errors and warnings."""
        return [entry["message"] for entry in self.driver.get_log("browser")
                if entry["level"] in ("SEVERE", "WARNING")]

    def picture(self, path, is_whole=True):
        """A PNG of the page, or of what the window shows of it."""
        size = self.driver.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
        clip = {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}
        image = self.driver.execute_cdp_cmd("Page.captureScreenshot",
                                            {"captureBeyondViewport": True, **(clip if is_whole else {})})
        with open(path, "wb") as file:
            file.write(base64.b64decode(image["data"]))


@pytest.fixture(scope="module")
def browser():
    b = Browser()
    yield b
    b.close()
