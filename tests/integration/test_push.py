"""What a registry, a proxy or a certificate answers, and the remedy that `make up` prints for it:
nothing is pushed.
"""

import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.cluster import registry
from tests.cluster.certificates import Authority
from tests.cluster.errors import ClusterError
from tests.cluster.registry import Registry

HOST = "127.0.0.2"
"""Of 127.0.0.1, clients also believe HTTP."""
DENIED = {"errors": [{"code": "DENIED", "message": "requested access to the resource is denied"}]}


class Answers(BaseHTTPRequestHandler):
    """A registry that is open to everyone and answers each upload with one status, or a proxy that
    does.
    """

    protocol_version = "HTTP/1.1"

    def __init__(self, *words: object, status: int, posts: list[str]) -> None:
        self.status, self.posts = status, posts
        super().__init__(*words)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        self._answer(200)

    def do_POST(self) -> None:
        self.posts.append(self.path)
        self._answer(self.status)

    def do_DELETE(self) -> None:
        self._answer(204)

    def do_CONNECT(self) -> None:
        self._answer(self.status)

    def _answer(self, status: int) -> None:
        body = json.dumps(DENIED).encode() if status >= 400 else b""
        self.send_response(status)
        self.send_header("Location", self.path)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *words: object) -> None:  # noqa: A002
        """Print nothing."""


@contextmanager
def server(
    status: int, posts: list[str], certificate: tuple[Path, Path] | None = None
) -> Iterator[str]:
    """A server with HTTPS, or HTTP without a certificate; gives host and port."""
    found = ThreadingHTTPServer((HOST, 0), partial(Answers, status=status, posts=posts))
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        found.socket = context.wrap_socket(found.socket, server_side=True)
    thread = Thread(target=found.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    with closing(found.socket):
        try:
            yield f"{HOST}:{found.server_port}"
        finally:
            found.shutdown()
            thread.join()
            found.server_close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def certificate(authority: Authority) -> tuple[Path, Path]:
    """Of HOST."""
    return authority.issue("registry", "registry", hosts=[HOST])


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody has logged in, and no proxy is set."""
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))


def refused(host: str, *certificates: Path) -> str:
    """What `make up` prints about this registry."""
    with pytest.raises(ClusterError) as error:
        registry.check(Registry(host, "team", certificates), ["slurmd", "login"])
    return str(error.value)


def test_who_may_push_gets_no_error_and_nothing_is_pushed(
    authority: Authority, certificate: tuple[Path, Path]
) -> None:
    posts: list[str] = []
    with server(202, posts, certificate) as host:
        registry.check(Registry(host, "team", (authority.certificate,)), ["slurmd", "login"])
    assert posts == ["/v2/team/slurmd/blobs/uploads/", "/v2/team/login/blobs/uploads/"]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "Log in with an account that may push to"),
        (403, "Ask for the right to push to"),
        (404, "a repository for each image: slurmd, login"),
        (500, "has a fault of its own"),
        (507, "no space left"),
    ],
)
def test_an_upload_that_is_refused_has_a_remedy(
    authority: Authority, certificate: tuple[Path, Path], status: int, words: str
) -> None:
    with server(status, [], certificate) as host:
        assert words in refused(host, authority.certificate)


def test_an_authority_that_this_host_does_not_know_is_to_be_named(
    certificate: tuple[Path, Path],
) -> None:
    with server(202, [], certificate) as host:
        assert "REGISTRY_CA=/path/of/ca.crt" in refused(host)


def test_a_certificate_of_another_name_is_reported_as_such(authority: Authority) -> None:
    with server(202, [], authority.issue("other", "other", hosts=["registry.test"])) as host:
        assert f"not valid for {host}" in refused(host, authority.certificate)


def test_a_registry_without_tls_is_refused() -> None:
    with server(202, []) as host:
        assert "Use a registry with HTTPS" in refused(host)


def test_a_registry_that_does_not_answer_is_a_matter_of_the_network(
    unused_tcp_port_factory: Callable[[], int],
) -> None:
    assert "Check the name, the network" in refused(f"{HOST}:{unused_tcp_port_factory()}")


@pytest.mark.parametrize("status", [403, 407, 502])
def test_a_proxy_that_refuses_is_reported_as_a_proxy(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    with server(status, []) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://{proxy}")
        found = refused("registry.test")
    assert "The proxy of HTTPS_PROXY can't be reached, or refuses" in found
    assert "add registry.test to NO_PROXY" in found


def test_a_proxy_that_does_not_answer_is_reported_as_a_proxy(
    monkeypatch: pytest.MonkeyPatch, unused_tcp_port_factory: Callable[[], int]
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://{HOST}:{unused_tcp_port_factory()}")
    assert "The proxy of HTTPS_PROXY can't be reached" in refused("registry.test")
