"""A headless Chromium, driven over its DevTools protocol (https://chromedevtools.github.io/devtools-protocol) by a pair of pipes: no
package beside the browser is needed."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def find():
    """The browser's path, or None. $OPTC_BROWSER names another."""
    given = os.environ.get("OPTC_BROWSER")
    return shutil.which(given) if given else next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """One page of one browser: opens files, evaluates JavaScript, clicks, types, takes pictures. What the page's console or an uncaught
    exception says at level error is in `errors`."""

    def __init__(self, path, width=1500, height=900, dark=False):
        self._profile = tempfile.TemporaryDirectory(prefix="optc-browser-", ignore_cleanup_errors=True)
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        command = [path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
                   f"--user-data-dir={self._profile.name}", "--remote-debugging-pipe", "about:blank"]

        def place():  # the browser reads file descriptor 3 and writes 4
            reading, writing = os.dup(to_browser), os.dup(from_browser)
            high = [os.dup2(reading, 203), os.dup2(writing, 204)]  # out of the way first
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)
            for descriptor in high:
                os.close(descriptor)

        self._process = subprocess.Popen(command, preexec_fn=place, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                         stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self._buffer, self._last, self._events, self.errors = b"", 0, [], []
        self._session = None
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.requests = []
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = "dark" if dark else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def close(self):
        os.close(self._write)
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)
        self._profile.cleanup()

    def _receive(self, deadline):
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError("the browser does not answer")
            data = os.read(self._read, 1 << 16)
            if not data:
                raise RuntimeError("the browser ended")
            self._buffer += data
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def _note(self, message):
        method, values = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = values["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded" and values["entry"]["level"] == "error":
            self.errors.append(values["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and values["type"] in ("error", "assert"):
            self.errors.append(" ".join(str(a.get("value", a.get("description"))) for a in values["args"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])
        self._events.append(method)

    def call(self, method, timeout=60, **values):
        self._last += 1
        message = {"id": self._last, "method": method, "params": values}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + timeout
        while True:
            answer = self._receive(deadline)
            if answer.get("id") != self._last:
                self._note(answer)
                continue
            if "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            return answer["result"]

    def open(self, path):
        """Loads a file and waits until it is drawn."""
        self._events.clear()
        path, _, fragment = str(path).partition("#")
        self.call("Page.navigate", url="file://" + os.path.abspath(path) + (fragment and "#" + fragment))
        deadline = time.monotonic() + 60
        while "Page.loadEventFired" not in self._events:
            self._note(self._receive(deadline))
        self.settle()

    def settle(self):
        """Two frames: what was asked for is drawn."""
        self.js("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def js(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description") or details["text"])
        return result["result"].get("value")

    def click(self, x, y):
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="none" if kind == "mouseMoved" else "left", clickCount=1)
        self.settle()

    def click_on(self, selector):
        box = self.js(f"(e => {{ e.scrollIntoView({{block: 'nearest'}}); const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2] }})"
                      f"(document.querySelector({json.dumps(selector)}))")
        self.click(*box)

    def drag(self, x, y, dx, dy):
        mouse = lambda kind, x, y: self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)
        mouse("mousePressed", x, y)
        for k in (1, 2, 3, 4):
            mouse("mouseMoved", x + dx * k / 4, y + dy * k / 4)
        mouse("mouseReleased", x + dx, y + dy)
        self.settle()

    def wheel(self, x, y, delta):
        self.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=delta)
        self.settle()

    def type(self, text):
        self.call("Input.insertText", text=text)
        self.settle()

    def key(self, key):
        code = {"Enter": 13, "Escape": 27, "ArrowUp": 38, "ArrowDown": 40}.get(key)
        text = {"text": "\r"} if key == "Enter" else {} if code else {"text": key}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **({"windowsVirtualKeyCode": code} if code else {}),
                      **(text if kind == "keyDown" else {}))
        self.settle()

    def picture(self, path, full=False):
        values = {"captureBeyondViewport": True} if full else {}
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png", **values)["data"]))
