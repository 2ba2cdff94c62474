"""A browser at a JupyterHub whose users log in at a provider of OpenID Connect, and that
provider.
"""

import asyncio
import json
import threading
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import aiohttp
from yarl import URL

from tests.support.real.harness import WILL_COME


@contextmanager
def provider(user: str) -> Iterator[str]:
    """The address of a provider where everyone is this user."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = parse_qs(urlsplit(self.path).query)
            if not self.path.startswith("/authorize"):
                self._answer({"preferred_username": user, "sub": user})
                return
            back = urlencode({"code": "code", "state": asked["state"][0]})
            self.send_response(302)
            self.send_header("Location", f"{asked['redirect_uri'][0]}?{back}")
            self.end_headers()

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._answer({"access_token": "token", "token_type": "Bearer"})

        def _answer(self, content: Mapping[str, str]) -> None:
            body = json.dumps(content).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Browser:
    """Has the cookies of a user who has logged in."""

    def __init__(self, session: aiohttp.ClientSession, url: str, user: str) -> None:
        self._session = session
        self.url = url
        self._server = f"/user/{user}"
        self._user = f"/hub/api/users/{user}"

    async def get(self, path: str) -> str:
        """Open a page, through all redirections. Raises an error of aiohttp."""
        async with self._session.get(f"{self.url}{path}", raise_for_status=True) as answer:
            return await answer.text()

    async def api(self, method: str, path: str, **body: Any) -> Any:
        """Send a request as a page does that has this path's cookies; None without an answer."""
        url = f"{self.url}{path}"
        cookies = self._session.cookie_jar.filter_cookies(URL(url))
        headers = {"X-XSRFToken": cookies["_xsrf"].value, "Referer": url}
        async with self._session.request(
            method, url, json=body, headers=headers, raise_for_status=True
        ) as answer:
            text = await answer.text()
        return json.loads(text) if text else None

    async def servers(self) -> Mapping[str, Any]:
        """The user's notebook servers, as the hub knows them."""
        servers: Mapping[str, Any] = (await self.api("GET", self._user))["servers"]
        return servers

    async def start(self) -> None:
        """Start the user's notebook server, as the page of the hub does, and open it."""
        await self.get("/hub/spawn")

        async def ready() -> bool:
            return bool((await self.servers()).get("", {}).get("ready"))

        await until("the notebook server to be ready", ready)
        await self.get(f"{self._server}/lab")

    async def until_reached(self) -> None:
        """Wait until the proxy leads to the notebook server, as it does again some time after the
        hub has begun to answer.
        """

        async def reached() -> bool:
            try:
                return "started" in json.loads(await self.get(f"{self._server}/api/status"))
            except (aiohttp.ClientError, ValueError):
                return False

        await until("the notebook server to be reached", reached)

    async def stop(self) -> None:
        """Stop the notebook server. Returns when the hub has none."""
        await self.api("DELETE", f"{self._user}/server")
        await self.until_stopped()

    async def until_stopped(self) -> None:
        """Wait until the hub has no notebook server of the user."""

        async def stopped() -> bool:
            return not await self.servers()

        await until("the notebook server to be gone", stopped)

    async def printed(self, code: str) -> str:
        """What the first line that a new kernel prints contains when it runs this code."""
        kernel = (await self.api("POST", f"{self._server}/api/kernels", name="python3"))["id"]
        channels = f"{self.url}{self._server}/api/kernels/{kernel}/channels"
        header = {
            "msg_id": uuid.uuid4().hex,
            "msg_type": "execute_request",
            "session": uuid.uuid4().hex,
            "username": "",
            "version": "5.3",
        }
        message = {
            "header": header,
            "parent_header": {},
            "metadata": {},
            "content": {"code": code, "silent": False},
            "channel": "shell",
            "buffers": [],
        }
        async with self._session.ws_connect(channels) as socket:
            await socket.send_json(message)
            async for received in socket:
                content = json.loads(received.data)
                if content["msg_type"] in {"stream", "error"}:
                    assert content["msg_type"] == "stream", content
                    return str(content["content"]["text"])
        raise AssertionError("the kernel has closed the connection")


@asynccontextmanager
async def logged_in(url: str, user: str) -> AsyncIterator[Browser]:
    """A browser whose user has logged in."""
    timeout = aiohttp.ClientTimeout(total=WILL_COME)
    async with aiohttp.ClientSession(
        cookie_jar=aiohttp.CookieJar(unsafe=True), timeout=timeout
    ) as session:
        found = Browser(session, url, user)
        await found.get("/hub/oauth_login")
        yield found


async def until(what: str, look: Callable[[], Awaitable[bool]]) -> None:
    """Wait until `look` finds it; fails naming `what`."""
    deadline = time.monotonic() + WILL_COME
    while not await look():
        assert time.monotonic() < deadline, f"waited {WILL_COME:.0f} s for {what}"
        await asyncio.sleep(0.25)
