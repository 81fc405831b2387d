"""A headless Chromium over its debugging pipe: opens pages from the disk, runs expressions in them and presses keys.

The protocol is https://chromedevtools.github.io/devtools-protocol/: JSON messages, each ended by a zero byte, on file descriptors 3 and 4.
"""

import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

#: Debian's packages chromium-headless-shell and chromium, and the names of other systems.
COMMANDS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync")
LIMIT_S = 120


def found() -> str | None:
    """The path of a Chromium on this machine."""
    return next((path for path in map(shutil.which, COMMANDS) if path), None)


class Chromium:
    """One page of a browser of its own. `complaints` are the errors and warnings of its console, `loaded` the files of the last `open`."""

    def __init__(self, folder: Path) -> None:
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        # Only a shell can say which descriptors are 3 and 4 without touching those of the tests.
        moved = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        command = ["bash", "-c", moved, str(found()), *OPTIONS, "--remote-debugging-pipe", f"--user-data-dir={folder}"]
        self._log = (folder.parent / "chromium.log").open("wb")
        self._process = subprocess.Popen(command, pass_fds=(to_browser, from_browser), stdout=self._log, stderr=self._log)
        os.close(to_browser)
        os.close(from_browser)
        self._number, self._rest, self._session = 0, b"", ""
        self._loads, self.complaints, self.loaded = 0, list[str](), list[Path]()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        os.close(self._out)  # a browser without its pipe ends
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        self._log.close()

    def look(self, width: int, scheme: str) -> None:
        """The next page is as wide as `width` CSS pixels; `scheme` is light or dark."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, page: Path) -> None:
        """Load a file and run its scripts; a file that the browser cannot read is a complaint."""
        self.complaints, self.loaded, before = [], [], self._loads
        self.call("Page.navigate", url=page.as_uri())
        self._until(lambda: self._loads > before)
        self.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))")  # scripts have run, styles are set

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression, a promise's once it is kept; RuntimeError where it throws."""
        done = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in done:
            raise RuntimeError(json.dumps(done["exceptionDetails"])[:500])
        return done["result"].get("value")

    def press(self, key: str) -> None:
        """A key goes down and up where the focus is: Enter, Tab, " ", or a letter."""
        codes, texts = {"Enter": 13, "Tab": 9, " ": 32, "ArrowDown": 40}, {"Enter": "\r", " ": " "}
        told = {"key": key, "windowsVirtualKeyCode": codes.get(key, ord(key[0].upper()))}
        text = texts.get(key, key if len(key) == 1 else "")
        self.call("Input.dispatchKeyEvent", type="keyDown", **told, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **told)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A method's answer; RuntimeError with the browser's own words where it refuses."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters, **({"sessionId": self._session} if self._session else {})}
        self._write(json.dumps(message).encode() + b"\0")
        answers: list[dict[str, Any]] = []
        self._until(lambda: bool(answers), number, answers)
        if "error" in answers[0]:
            raise RuntimeError(f"{method}: {answers[0]['error']}")
        return dict(answers[0]["result"])

    def _write(self, content: bytes) -> None:
        while content:
            content = content[os.write(self._out, content) :]

    def _until(self, done: Callable[[], bool], number: int = 0, answers: list[dict[str, Any]] | None = None) -> None:
        end = time.monotonic() + LIMIT_S
        while not done():
            while b"\0" not in self._rest:
                if not select.select([self._in], [], [], max(0, end - time.monotonic()))[0]:
                    raise TimeoutError(f"Chromium gave no answer in {LIMIT_S} s")
                if not (chunk := os.read(self._in, 1 << 20)):
                    raise RuntimeError(f"Chromium ended with {self._process.wait()}; its words are in {self._log.name}")
                self._rest += chunk
            head, _, self._rest = self._rest.partition(b"\0")
            message = json.loads(head)
            if answers is not None and message.get("id") == number:
                answers.append(message)
            else:
                self._note(message.get("method", ""), message.get("params", {}))

    def _note(self, method: str, told: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loads += 1
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(told["exceptionDetails"].get("exception", told["exceptionDetails"]))[:300])
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.complaints.append(f"{told['type']}: {[one.get('value', one.get('description')) for one in told['args']]}")
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent" and (address := urlsplit(told["request"]["url"])).scheme != "data":
            self.loaded.append(Path(unquote(address.path)) if address.scheme == "file" else Path(told["request"]["url"]))
