"""A headless Chromium that tests drive over the DevTools protocol, on a pipe: no driver, no socket, no network."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
BASH = shutil.which("bash")
SECONDS = 60
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


class Browser:
    """One process with one page, which ``open`` replaces."""

    def __init__(self, profile: Path) -> None:
        read, self._send = os.pipe()
        self._receive, write = os.pipe()
        command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            [str(BASH), "-c", f'exec "$@" 3<&{read} 4>&{write}', "bash", *command],
            pass_fds=(read, write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read)
        os.close(write)
        self._count, self._rest, self._session = 0, b"", ""
        self.events: list[dict[str, Any]] = []
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Network"):
                self.call(f"{domain}.enable")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(SECONDS)
        os.close(self._send)
        os.close(self._receive)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send one command and wait for its result; what else arrives is kept in ``events``."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._count:
            self.events.append(answer)
        assert "error" not in answer, (method, answer)
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        until = time.monotonic() + SECONDS
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._receive], [], [], max(until - time.monotonic(), 0))
            data = os.read(self._receive, 1 << 20) if ready else b""
            assert data, "the browser does not answer"
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def open(self, path: Path, place: str = "", width: int = 1200, height: int = 800) -> None:
        """Load a file and wait until it is there."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri() + place)
        wanted = json.dumps(path.as_uri() + place)
        until = time.monotonic() + SECONDS
        while not self.run(f"location.href === {wanted} && document.readyState === 'complete'"):
            assert time.monotonic() < until, f"{path.name} is not loaded"
            time.sleep(0.02)

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def centre(self, selector: str) -> tuple[float, float]:
        """The middle of the first element that a selector finds."""
        x, y, width, height = self.run(
            f"(({{x, y, width, height}}) => [x, y, width, height])"
            f"(document.querySelector({json.dumps(selector)}).getBoundingClientRect())"
        )
        return x + width / 2, y + height / 2

    def click(self, where: str | tuple[float, float]) -> None:
        """Press and release the left button on an element or a point."""
        point = self.centre(where) if isinstance(where, str) else where
        self.drag(point, point)

    def drag(self, start: tuple[float, float], stop: tuple[float, float]) -> None:
        """Move the pointer from one point to another with the left button down."""
        self._mouse("mouseMoved", start, buttons=0)
        self._mouse("mousePressed", start, button="left", buttons=1, clickCount=1)
        if stop != start:
            middle = ((start[0] + stop[0]) / 2, (start[1] + stop[1]) / 2)
            self._mouse("mouseMoved", middle, buttons=1)
            self._mouse("mouseMoved", stop, buttons=1)
        self._mouse("mouseReleased", stop, button="left", buttons=0, clickCount=1)

    def wheel(self, point: tuple[float, float], down: float) -> None:
        """Turn the wheel above a point."""
        self._mouse("mouseWheel", point, deltaX=0, deltaY=down)

    def _mouse(self, kind: str, point: tuple[float, float], **params: Any) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=point[0], y=point[1], **params)

    def type(self, words: str) -> None:
        """Write into the element that has the focus."""
        self.call("Input.insertText", text=words)

    def enter(self) -> None:
        """Press and release the Enter key."""
        key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
        self.call("Input.dispatchKeyEvent", type="keyDown", **key)
        self.call("Input.dispatchKeyEvent", type="keyUp", **{**key, "text": ""})

    def problems(self) -> list[str]:
        """Exceptions and errors of the page's script since it was opened."""
        kinds = ("Runtime.exceptionThrown", "Network.loadingFailed")
        failed = [json.dumps(event["params"]) for event in self.events if event.get("method") in kinds]
        logged = [event for event in self.events if event.get("method") == "Runtime.consoleAPICalled"]
        return failed + [json.dumps(event["params"]) for event in logged if event["params"]["type"] == "error"]

    def asked(self) -> list[str]:
        """Addresses that the page has asked for since it was opened."""
        sent = [event for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]
