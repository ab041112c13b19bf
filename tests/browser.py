"""Headless Chromium over its debugging pipe: open a page, use it, see console and picture."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--remote-debugging-pipe",
)
# The browser reads commands from 3 and writes to 4.
START = """
import os, sys
from fcntl import F_DUPFD, fcntl
ends = [fcntl(int(end), F_DUPFD, 10) for end in sys.argv[1:3]]
for end, number in zip(ends, (3, 4)):
    os.dup2(end, number)
os.execv(sys.argv[3], sys.argv[3:])
"""


def executable() -> str | None:
    """Where a browser lies, if there is one."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One page of a browser of its own; a context manager.

    Args:
        width: Of the window, in CSS pixels.
        height: Of the window.
        ratio: Device pixels to a CSS pixel.
        touch: Pretend to have a touch screen.
    """

    def __init__(
        self, width: int = 1280, height: int = 800, ratio: float = 1.0, touch: bool = False
    ) -> None:
        self.console: list[str] = []
        self.requests: list[str] = []
        self._number = 0
        self._buffer = b""
        self._profile = tempfile.mkdtemp(prefix="browser")
        (theirs_in, self._out), (self._in, theirs_out) = os.pipe(), os.pipe()
        place = f"--user-data-dir={self._profile}"
        ends = [str(theirs_in), str(theirs_out)]
        self._process = subprocess.Popen(
            [sys.executable, "-c", START, *ends, str(executable()), *FLAGS, place, "about:blank"],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._session: str | None = None
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(each["targetId"] for each in targets if each["type"] == "page")
        opened = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = opened["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=ratio, mobile=touch,
        )  # fmt: skip
        if touch:
            self.call("Emulation.setTouchEmulationEnabled", enabled=True)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._session = None
        try:
            self.call("Browser.close", timeout=5)
            self._process.wait(10)
        except (OSError, TimeoutError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        for end in (self._in, self._out):
            os.close(end)
        shutil.rmtree(self._profile, ignore_errors=True)

    def call(self, method: str, timeout: float = 60.0, **params: Any) -> dict[str, Any]:
        """One command of the DevTools protocol and its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + timeout
        while True:
            answer = self._message(end)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return dict(answer["result"])
            self._note(answer)

    def open(self, path: Path) -> None:
        """Load a file and wait until its script has run."""
        self.call("Page.navigate", url=path.resolve().as_uri())
        end = time.monotonic() + 30
        while self.run("document.readyState") != "complete":
            if time.monotonic() > end:
                raise TimeoutError(f"{path} did not load")
            time.sleep(0.05)
        self.settle()

    def run(self, code: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        answer = self.call(
            "Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def settle(self) -> None:
        """Let two frames pass."""
        self.run("new Promise(f => requestAnimationFrame(() => requestAnimationFrame(() => f(1))))")

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """A mouse event: ``Pressed``, ``Released``, ``Moved`` or ``Wheel``."""
        self.call("Input.dispatchMouseEvent", type=f"mouse{kind}", x=x, y=y, **more)

    def click(self, x: float, y: float) -> None:
        """Press and release the left button."""
        for kind in ("Pressed", "Released"):
            self.mouse(kind, x, y, button="left", buttons=int(kind == "Pressed"), clickCount=1)
        self.settle()

    def drag(self, start: tuple[float, float], end: tuple[float, float], **more: Any) -> None:
        """Press, move in steps, release."""
        button = more.pop("button", "left")
        buttons = {"left": 1, "right": 2}[button]
        self.mouse("Pressed", *start, button=button, buttons=buttons, clickCount=1)
        for part in (0.25, 0.5, 0.75, 1.0):
            x, y = (a + (b - a) * part for a, b in zip(start, end, strict=True))
            self.mouse("Moved", x, y, button=button, buttons=buttons, **more)
        self.mouse("Released", *end, button=button, buttons=0, clickCount=1)
        self.settle()

    def touch(self, kind: str, *places: tuple[float, float]) -> None:
        """A touch event: ``Start``, ``Move`` or ``End`` with all fingers."""
        points = [{"x": x, "y": y, "id": i} for i, (x, y) in enumerate(places)]
        self.call("Input.dispatchTouchEvent", type=f"touch{kind}", touchPoints=points)

    def picture(self) -> bytes:
        """The page as a PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def _message(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError("the browser does not answer")
            more = os.read(self._in, 2**20)
            if not more:
                raise OSError("the browser has gone")
            self._buffer += more
        raw, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(raw))

    def _note(self, event: dict[str, Any]) -> None:
        """Keep what the console says and what is asked of the network."""
        params = event.get("params", {})
        if event.get("method") == "Runtime.consoleAPICalled":
            self.console.append(f"{params['type']}: {params['args']}")
        elif event.get("method") == "Runtime.exceptionThrown":
            self.console.append(f"exception: {params['exceptionDetails']}")
        elif event.get("method") == "Log.entryAdded":
            self.console.append(f"{params['entry']['level']}: {params['entry']['text']}")
        elif event.get("method") == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
