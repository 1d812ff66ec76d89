"""A headless Chromium for tests of pages; it can reach no other machine."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DRIVER = "chromedriver"
# page errors come with the log; names of other machines do not resolve
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--window-size=1280,900",
)


def find_programs() -> tuple[str, str]:
    """Paths of the browser and of its driver; skips the test where one is absent, fails it where `CI` is set."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which(DRIVER)
    missing = [name for name, found in ((BROWSERS[0], browser), (DRIVER, driver)) if found is None]
    if missing:
        reason = f"needs {' and '.join(missing)} (Debian: apt-get install chromium chromium-driver)"
        if os.environ.get("CI", "").lower() in ("1", "true"):
            pytest.fail(reason)
        pytest.skip(reason)
    return browser, driver


@contextmanager
def chromium(profile: Path) -> Iterator[Chrome]:
    """A browser with a fresh profile in `profile`, ended with all its processes on exit."""
    browser, driver = find_programs()
    options = ChromeOptions()
    options.binary_location = browser
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for option in (*OPTIONS, f"--user-data-dir={profile}"):
        options.add_argument(option)
    chrome = Chrome(options=options, service=Service(executable_path=driver, log_output=subprocess.DEVNULL))
    try:
        yield chrome
    finally:
        chrome.quit()


def console_errors(chrome: Chrome) -> list[str]:
    """Errors and warnings that the page has logged since the last call, with blocked loads and uncaught errors."""
    return [entry["message"] for entry in chrome.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def emulate(chrome: Chrome, width: int = 1280, height: int = 900, dark: bool = False, paper: bool = False) -> None:
    """Set the size of the viewport in CSS pixels, the colour scheme and the medium."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print" if paper else "", "features": [scheme]})


def evaluate(chrome: Chrome, expression: str, *arguments) -> object:
    """The value of a JavaScript expression; `$0`, `$1`, ... are the arguments."""
    names = ", ".join(f"${i}" for i in range(len(arguments)))
    return chrome.execute_script(f"return (({names}) => ({expression}))(...{json.dumps(arguments)});")
