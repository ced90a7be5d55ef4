# SPDX-License-Identifier: Apache-2.0
"""Drives a headless Chromium over its own pipe, with the standard library alone; asserts nothing.

The DevTools protocol is JSON messages ended by a zero byte: the browser reads them from descriptor 3 and answers on 4.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SECONDS = 60.0


def find() -> str | None:
    """Return the browser's program, None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name)) is not None), None)


class Browser:
    """One browser with one page.

    Args:
        program: The browser.
        profile: A folder of its own.
    """

    def __init__(self, program: str, profile: Path) -> None:
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        words = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        words += [
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-extensions",
            "--disable-background-networking",
        ]
        words += [f"--user-data-dir={profile}", "about:blank"]
        # A shell puts the pipes where the browser looks for them.
        script = f'exec "$@" 3</dev/fd/{theirs_in} 4>/dev/fd/{theirs_out}'
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", script, "sh", *words],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._out, self._in = ours_out, ours_in
        self._buffer = b""
        self._count = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The browser ends itself when its pipe closes.
        os.close(self._out)
        os.close(self._in)
        self._process.terminate()
        self._process.wait(30)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask the browser and return its answer."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def open(self, page: Path, width: int, *, dark: bool = False) -> None:
        """Show a page as on a screen of this width."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        self.events.clear()
        self.call("Page.navigate", url=page.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())

    def ask(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def complaints(self) -> list[str]:
        """Return what the page wrote to the console or failed to load since it was opened, and requests it made."""
        self.call("Runtime.evaluate", expression="0")
        bad = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded", "Network.loadingFailed")
        found = [json.dumps(event) for event in self.events if event.get("method") in bad]
        requests = [event["params"]["request"]["url"] for event in self.events if _is_request(event)]
        return found + [url for url in requests if not url.startswith(("file:", "data:"))]

    def screenshot(self, path: Path) -> None:
        """Write a picture of the whole page."""
        height = self.ask("document.documentElement.scrollHeight")
        width = self.ask("innerWidth")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _read(self) -> dict[str, Any]:
        end = time.monotonic() + SECONDS
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError(f"The browser said nothing for {SECONDS:.0f} s.")
            chunk = os.read(self._in, 1 << 16)
            if not chunk:
                raise ConnectionError(f"The browser ended with code {self._process.wait(30)}.")
            self._buffer += chunk
        message, self._buffer = self._buffer.split(b"\0", 1)
        answer: dict[str, Any] = json.loads(message)
        return answer


def _is_request(event: dict[str, Any]) -> bool:
    return event.get("method") == "Network.requestWillBeSent"
