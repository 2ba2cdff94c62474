"""`python -m tests.browser FOLDER AXE`: that a built site can be read in a browser.

Debian's headless Chromium opens pages of the site, at the width of a telephone and of a desktop.
Nothing is written to the console, no page is wider than its window, and axe-core, whose script is
the file AXE, finds no text with too little contrast and no field, button, picture or frame without
a name. A page with one fault of each kind comes first: each must be found. With SCREENSHOTS in the
environment, a picture of each page is written to that folder.
"""

import asyncio
import base64
import contextlib
import functools
import http.server
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from tests.cluster import debian
from tests.cluster.errors import ClusterError

VIEWS = ((360, "light"), (1440, "light"), (1440, "dark"))
"""Widths of the window, and what the reader prefers."""
HEIGHT = 900
PAGES = (
    "index",
    "first-hour",
    "use-jobs",
    "bridge",
    "monitoring",
    "comparison",
    "reference/values-slurm-operator",
    "search",
)
"""One of each kind."""
RULES = (
    "color-contrast",
    "image-alt",
    "svg-img-alt",
    "label",
    "button-name",
    "link-name",
    "select-name",
    "input-button-name",
    "frame-title",
    "document-title",
    "html-has-lang",
    "aria-input-field-name",
    "duplicate-id-aria",
)
"""Rules of axe-core: https://github.com/dequelabs/axe-core/blob/develop/doc/rule-descriptions.md"""
FAULTY = """data:text/html,<!doctype html><html lang=en><title>Faulty</title>
<p style="color:%23aaa;background:%23fff">pale</p><input>
<img src="data:image/gif;base64,R0lGODlhAQABAAAAACw=">
<div style="width:2000px">wide</div><script>console.error("a fault")</script>"""
"""A page of its own."""
FOUND = ("console: a fault", "it is ", "color-contrast: ", "label: ", "image-alt: ")
"""How the problems of this page begin."""
SECONDS = 60.0


@dataclass
class Page:
    """A page of the browser, by the protocol of its tools.

    https://chromedevtools.github.io/devtools-protocol/
    """

    socket: aiohttp.ClientWebSocketResponse
    written: list[str] = field(default_factory=list)
    """Errors and warnings of the console since the page was opened."""
    _number: int = 0

    async def send(self, method: str, **parameters: object) -> dict[str, Any]:
        """The answer to a request; what happens meanwhile is kept."""
        self._number += 1
        await self.socket.send_json({"id": self._number, "method": method, "params": parameters})
        while True:
            message = await self._next()
            if message.get("id") == self._number:
                if "error" in message:
                    raise ClusterError(f"{method}: {message['error']}")
                answer: dict[str, Any] = message["result"]
                return answer

    async def open(self, url: str, width: int) -> None:
        """Load a page, and wait until it is complete."""
        metrics = {"width": width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        await self.send("Emulation.setDeviceMetricsOverride", **metrics)
        self.written = []
        await self.send("Page.navigate", url=url)
        while (await self._next()).get("method") != "Page.loadEventFired":
            pass

    async def value(self, expression: str) -> Any:
        """What an expression of JavaScript, or its promise, results in."""
        answer = await self.send(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise ClusterError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    async def _next(self) -> dict[str, Any]:
        message: dict[str, Any] = await self.socket.receive_json(timeout=SECONDS)
        given = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.written.append(str(given["exceptionDetails"].get("text")))
        elif message.get("method") == "Runtime.consoleAPICalled":
            if given["type"] in {"error", "warning", "assert"}:
                self.written.append(" ".join(str(it.get("value")) for it in given["args"]))
        elif message.get("method") == "Log.entryAdded" and given["entry"]["level"] != "info":
            self.written.append(f"{given['entry']['text']} {given['entry'].get('url', '')}")
        return message


@contextlib.asynccontextmanager
async def browser(folder: Path) -> AsyncIterator[Page]:
    """A page of Chromium, whose files are in the folder. It connects to this host alone."""
    program = await asyncio.to_thread(debian.browser)
    words = (
        *(str(program), "--remote-debugging-port=0", f"--user-data-dir={folder}"),
        *("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
        *("--proxy-server=127.0.0.1:1", "--proxy-bypass-list=127.0.0.1", "about:blank"),
    )
    process = await asyncio.create_subprocess_exec(
        *words,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "FONTCONFIG_FILE": str(program.with_name("fonts.conf"))},
    )
    try:
        address = await asyncio.wait_for(_address(process), SECONDS)
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://{address}/json/list") as answer:
                (target, *_) = await answer.json()
            async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                page = Page(socket)
                for part in ("Page", "Runtime", "Log"):
                    await page.send(f"{part}.enable")
                yield page
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _address(process: asyncio.subprocess.Process) -> str:
    """Where the browser listens, which it writes at its start."""
    assert process.stderr is not None
    lines = []
    async for line in process.stderr:
        lines.append(line.decode())
        if "DevTools listening on ws://" in lines[-1]:
            return lines[-1].partition("ws://")[2].partition("/")[0]
    raise ClusterError(f"Chromium has ended: {''.join(lines)}")


async def problems(page: Page, axe: str) -> list[str]:
    """What is wrong with the page that is open."""
    found = [f"console: {it}" for it in page.written]
    wide = await page.value("document.scrollingElement.scrollWidth - window.innerWidth")
    if wide > 0:
        found.append(f"it is {wide} pixels wider than its window")
    await page.value(f"{axe};undefined")
    chosen = {"runOnly": {"type": "rule", "values": RULES}, "resultTypes": ["violations"]}
    result = await page.value(f"axe.run(document, {json.dumps(chosen)})")
    for violation in result["violations"]:
        for node in violation["nodes"]:
            summary = " ".join(node["failureSummary"].split())
            found.append(f"{violation['id']}: {node['html'][:120]} {summary}")
    return found


async def check(site: str, pages: Sequence[str], axe: str, pictures: str = "") -> list[str]:
    """What is wrong with pages of the site at this address."""
    found: dict[str, None] = {}
    with tempfile.TemporaryDirectory() as folder:
        async with browser(Path(folder)) as page:
            await page.open(FAULTY, 360)
            first = await problems(page, axe)
            found |= {
                f"a page with this fault passes: {it}": None
                for it in FOUND
                if not any(problem.startswith(it) for problem in first)
            }
            for name, (width, scheme) in itertools.product(pages, VIEWS):
                features = [{"name": "prefers-color-scheme", "value": scheme}]
                await page.send("Emulation.setEmulatedMedia", features=features)
                await page.open(f"{site}/{name}.html", width)
                place = f"{name}.html at {width} pixels, {scheme}"
                found |= {f"{place}: {it}": None for it in await problems(page, axe)}
                if pictures:
                    await _picture(page, Path(pictures), f"{name}-{width}-{scheme}")
    return list(found)


async def _picture(page: Page, folder: Path, name: str) -> None:
    data = (await page.send("Page.captureScreenshot"))["data"]
    (folder / f"{name.replace('/', '-')}.png").write_bytes(base64.b64decode(data))


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address at which this process serves the files of a folder."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def main(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> int:
    """The command; 0 means that nothing is wrong."""
    folder, axe = map(Path, arguments)
    pictures = environment.get("SCREENSHOTS", "")
    if pictures:
        Path(pictures).mkdir(parents=True, exist_ok=True)
    with served(folder) as site:
        script = axe.read_text(encoding="utf-8")
        found = asyncio.run(check(site, PAGES, script, pictures))
    looks = len(PAGES) * len(VIEWS)
    print("\n".join(found) or f"{looks} views in Chromium, and nothing is wrong")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
