"""Pinning images by digest, with a registry on this host."""

import hashlib
import http.server
import json
import shutil
import socket
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from schemas import image_digests
from schemas.image_digests import Answer, Image, LockError, registry_digest

VALUES = """\
imagePullPolicy: IfNotPresent
images:
  repository: {registry}/slurm
  tag: null
controller:
  slurmctld:
    image: {registry}/slurm/slurmctld:26.05
  reconfigure:
    image: null
restapi:
  slurmrestd:
    image: null
sets:
  slurmd:
    image:
      repository: {registry}/slurm/slurmd
      tag: "26.05"
      digest: null
operator:
  image:
    repository: {registry}/sidecars
    tag: ""
"""
CONTAINERFILE = """\
# A comment.
ARG BASE={registry}/library/debian:forky-slim

FROM ${{BASE}}
"""


def digest_of(path: str) -> str:
    return f"sha256:{hashlib.sha256(path.encode()).hexdigest()}"


class Registry(http.server.ThreadingHTTPServer):
    """Answers a HEAD of each tag in `tags`, NAME:TAG, with a digest of its own, for clients with a
    token.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.tags = {f"slurm/{daemon}:26.05" for daemon in ("slurmctld", "slurmrestd", "slurmd")}
        self.tags |= {"sidecars:1.2.3", "library/debian:forky-slim"}
        self.requests: list[str] = []
        self.tokens = True
        self.realm = f"http://{self.address}/token"
        self.status = 200
        self.headers = {"Docker-Content-Digest": ""}
        self.location = ""
        self.token_body: bytes | None = None
        self.resume = threading.Event()
        self.resume.set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Registry

    def do_HEAD(self) -> None:
        registry = self.server
        registry.requests.append(f"HEAD {self.path}")
        registry.resume.wait(10)
        _, version, *name, kind, tag = self.path.split("/")
        reference = f"{'/'.join(name)}:{tag}"
        if (version, kind) != (
            "v2",
            "manifests",
        ) or "application/vnd.oci.image.index.v1+json" not in self.accepted()[0]:
            self.answer(400)
        elif registry.tokens and self.headers["Authorization"] != f"Bearer for {'/'.join(name)}":
            scope = f"repository:{'/'.join(name)}:pull"
            self.answer(
                401,
                {
                    "WWW-Authenticate": f'Bearer realm="{registry.realm}",service="here",'
                    f'scope="{scope}"'
                },
            )
        elif registry.location:
            self.answer(307, {"Location": registry.location})
        elif registry.status != 200:
            self.answer(registry.status)
        elif reference not in registry.tags:
            self.answer(404)
        else:
            sent = registry.headers.get("Docker-Content-Digest")
            self.answer(
                200, {} if sent is None else {"Docker-Content-Digest": sent or digest_of(reference)}
            )

    def do_GET(self) -> None:
        self.server.requests.append(f"GET {self.path}")
        parts = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(parts.query))
        if parts.path != "/token" or query.get("service") != "here":
            self.answer(400)
        else:
            token = json.dumps({"token": f"for {query['scope'].split(':')[1]}"}).encode()
            self.answer(
                200, {}, token if self.server.token_body is None else self.server.token_body
            )

    def accepted(self) -> list[str]:
        return [part.strip() for part in self.headers["Accept"].split(",")]

    def answer(self, status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    with Registry() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.resume.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def root(tmp_path: Path, registry: Registry) -> Path:
    """A repository with one chart with images, one without, and one image."""
    for chart, values in (
        ("slurm", VALUES.format(registry=registry.address)),
        ("crds", "keep: true\n"),
    ):
        folder = tmp_path / "charts" / chart
        folder.mkdir(parents=True)
        (folder / "Chart.yaml").write_text('version: 1.2.3\nappVersion: "26.05"\n')
        (folder / "values.yaml").write_text(values)
    (tmp_path / "images" / "slurmd").mkdir(parents=True)
    (tmp_path / "images/slurmd/Containerfile").write_text(
        CONTAINERFILE.format(registry=registry.address)
    )
    return tmp_path


def contents(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()
    }


def test_every_image_of_the_default_values_is_pinned_in_a_values_file(
    root: Path, registry: Registry
) -> None:
    assert image_digests.main([], root) == 0
    assert yaml.safe_load((root / "charts/slurm/image-digests.yaml").read_text()) == {
        "controller": {
            "slurmctld": {
                "image": {
                    "repository": f"{registry.address}/slurm/slurmctld",
                    "tag": f"26.05@{digest_of('slurm/slurmctld:26.05')}",
                }
            }
        },
        "restapi": {
            "slurmrestd": {
                "image": {
                    "repository": f"{registry.address}/slurm/slurmrestd",
                    "tag": f"26.05@{digest_of('slurm/slurmrestd:26.05')}",
                }
            }
        },
        "sets": {
            "slurmd": {
                "image": {
                    "repository": f"{registry.address}/slurm/slurmd",
                    "tag": f"26.05@{digest_of('slurm/slurmd:26.05')}",
                }
            }
        },
        "operator": {
            "image": {
                "repository": f"{registry.address}/sidecars",
                "tag": f"1.2.3@{digest_of('sidecars:1.2.3')}",
            }
        },
    }
    assert not (root / "charts/crds/image-digests.yaml").exists()


def test_the_base_image_is_pinned_in_its_containerfile(root: Path, registry: Registry) -> None:
    before = (root / "images/slurmd/Containerfile").read_text()
    assert image_digests.main([], root) == 0
    base = f"{registry.address}/library/debian:forky-slim"
    pinned = f"{base}@{digest_of('library/debian:forky-slim')}"
    assert (root / "images/slurmd/Containerfile").read_text() == before.replace(base, pinned)


def test_a_second_run_changes_nothing(
    root: Path, registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    image_digests.main([], root)
    before = contents(root)
    assert capsys.readouterr().out.split() == [
        "charts/slurm/image-digests.yaml",
        "images/slurmd/Containerfile",
    ]
    assert image_digests.main([], root) == 0
    assert contents(root) == before
    assert capsys.readouterr().out == ""


def test_a_tag_that_moved_gets_its_new_digest(root: Path, registry: Registry) -> None:
    image_digests.main([], root)
    new = f"sha256:{'1' * 64}"
    registry.headers = {"Docker-Content-Digest": new}
    assert image_digests.main([], root) == 0
    assert (
        f"ARG BASE={registry.address}/library/debian:forky-slim@{new}\n"
        in (root / "images/slurmd/Containerfile").read_text()
    )
    assert (root / "charts/slurm/image-digests.yaml").read_text().count(new) == 4


def test_each_image_is_asked_for_once_with_a_token_for_it_alone(
    root: Path, registry: Registry
) -> None:
    (root / "images/login").mkdir()
    shutil.copy(root / "images/slurmd/Containerfile", root / "images/login")
    image_digests.main([], root)
    head = "HEAD /v2/sidecars/manifests/1.2.3"
    assert registry.requests.count("HEAD /v2/library/debian/manifests/forky-slim") == 2
    at = registry.requests.index(head)
    token = "GET /token?service=here&scope=repository%3Asidecars%3Apull"
    assert registry.requests[at : at + 3] == [head, token, head]


def test_a_registry_without_tokens_is_asked_once(registry: Registry) -> None:
    registry.tokens = False
    assert registry_digest(Image(registry.address, "sidecars", "1.2.3")) == digest_of(
        "sidecars:1.2.3"
    )
    assert registry.requests == ["HEAD /v2/sidecars/manifests/1.2.3"]


def test_a_missing_tag_is_named_with_all_others_that_are_missing_and_nothing_is_written(
    root: Path, registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    image_digests.main([], root)
    capsys.readouterr()
    before = contents(root)
    registry.headers = {"Docker-Content-Digest": f"sha256:{'1' * 64}"}
    registry.tags -= {"slurm/slurmd:26.05", "sidecars:1.2.3"}
    assert image_digests.main([], root) == 1
    assert contents(root) == before
    found = capsys.readouterr().err.splitlines()
    assert found[-1] == "Nothing was written."
    here = registry.address
    assert [line.partition(" answered ")[0] for line in found[:-1]] == [
        f"{here}/{image}: the registry {here}" for image in ("slurm/slurmd:26.05", "sidecars:1.2.3")
    ]
    assert f"404 to http://{here}/v2/sidecars/manifests/1.2.3." in found[1]
    assert found[1].endswith("It doesn't have this tag. Push the image, or correct the tag.")


@pytest.mark.parametrize(
    ("status", "remedy"),
    [
        (403, "403 .*It refuses anonymous clients. Make the image public, or correct its name."),
        (429, "429 .*It limits the number of requests. Wait, and run `make lock-images` again."),
        (503, "503 .*Correct the image, or run `make lock-images` again later."),
    ],
)
def test_a_refusal_names_image_and_registry_and_remedy(
    registry: Registry, status: int, remedy: str
) -> None:
    registry.status = status
    image = Image(registry.address, "sidecars", "1.2.3")
    with pytest.raises(
        LockError, match=f"^{image}: the registry {registry.address} answered {remedy}$"
    ):
        registry_digest(image)


@pytest.mark.parametrize("sent", [None, "sha256:short", f"sha256:{'a' * 64}\x20x"])
def test_an_answer_without_a_digest_is_an_error(registry: Registry, sent: str | None) -> None:
    registry.headers = {} if sent is None else {"Docker-Content-Digest": sent}
    with pytest.raises(
        LockError, match=r"sidecars:1.2.3: the registry .* Use the image from a registry that sends"
    ):
        registry_digest(Image(registry.address, "sidecars", "1.2.3"))


def test_a_registry_that_does_not_answer_in_time_is_an_error(registry: Registry) -> None:
    registry.resume.clear()
    started = time.monotonic()
    with pytest.raises(
        LockError, match=r"sidecars:1.2.3: the registry .* no usable answer: timed out. Check"
    ):
        registry_digest(Image(registry.address, "sidecars", "1.2.3"), seconds=0.1)
    assert time.monotonic() - started < 60


def test_a_registry_that_does_not_listen_is_an_error(registry: Registry) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(
            LockError,
            match=r"sidecars:1.2.3: the registry .* gave no usable answer: .*refused.*Check",
        ):
            registry_digest(Image(address, "sidecars", "1.2.3"))


def test_a_token_is_fetched_with_https_only(registry: Registry) -> None:
    registry.realm = "http://registry.example/token"
    with pytest.raises(
        LockError, match=r"it refers to 'http://registry.example/token\?.*', which isn't https"
    ):
        registry_digest(Image(registry.address, "sidecars", "1.2.3"))


def test_a_refused_token_names_the_server_that_refused_it(registry: Registry) -> None:
    registry.realm = f"http://{registry.address}/other"
    with pytest.raises(
        LockError,
        match=r"sidecars:1.2.3: the registry .* answered 400 to http://[^/]*/other\?service=here",
    ):
        registry_digest(Image(registry.address, "sidecars", "1.2.3"))


@pytest.mark.parametrize("body", [b"", b"[]", b'{"token": null}'])
def test_an_answer_without_a_token_is_an_error(registry: Registry, body: bytes) -> None:
    registry.token_body = body
    with pytest.raises(LockError, match=r"sidecars:1.2.3: the registry .* gave no usable answer: "):
        registry_digest(Image(registry.address, "sidecars", "1.2.3"))


def test_a_redirect_is_not_followed(registry: Registry) -> None:
    registry.location = f"http://{registry.address}/v2/library/debian/manifests/forky-slim"
    with pytest.raises(
        LockError,
        match=r"sidecars:1.2.3: the registry .* answered 307 to .*sidecars/manifests/1.2.3",
    ):
        registry_digest(Image(registry.address, "sidecars", "1.2.3"))


def test_docker_hub_and_others_are_asked_at_their_api_with_https(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def send(method: str, url: str, headers: Mapping[str, str], seconds: float) -> Answer:
        asked.append(url)
        return Answer(200, url, {"Docker-Content-Digest": f"sha256:{'a' * 64}"})

    monkeypatch.setattr(image_digests, "send", send)
    registry_digest(Image("docker.io", "library/debian", "forky-slim"))
    registry_digest(Image("ghcr.io", "slinkyproject/slurmd", "26.05"))
    assert asked == [
        "https://registry-1.docker.io/v2/library/debian/manifests/forky-slim",
        "https://ghcr.io/v2/slinkyproject/slurmd/manifests/26.05",
    ]


@pytest.mark.parametrize(
    "text", ["debian:forky", "ghcr.io/slurm/slurmd", "ghcr.io/slurm/slurmd@sha256:00", "a b"]
)
def test_an_image_without_its_registry_or_tag_is_named_with_its_place(
    root: Path, text: str
) -> None:
    (root / "charts/slurm/values.yaml").write_text(
        f"controller: {{slurmctld: {{image: {json.dumps(text)}}}}}\n"
    )
    with pytest.raises(
        LockError,
        match=r"^charts/slurm/values.yaml: controller.slurmctld.image: .* Write REGISTRY/NAME",
    ):
        image_digests.images(root)


def test_check_finds_a_lock_of_other_images_without_a_request(
    root: Path, registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    assert image_digests.main(["--check"], root) == 0
    image_digests.main([], root)
    registry.requests.clear()
    assert image_digests.main(["--check"], root) == 0
    values = root / "charts/slurm/values.yaml"
    values.write_text(values.read_text().replace("slurmctld:26.05", "slurmctld:26.11"))
    assert image_digests.main(["--check"], root) == 1
    assert capsys.readouterr().err.splitlines() == [
        (
            "charts/slurm/image-digests.yaml: doesn't pin the images of values.yaml; run `make "
            "lock-images`"
        )
    ]
    assert registry.requests == []


def test_the_repository_pins_the_images_of_all_daemons_and_the_base_image() -> None:
    found = {str(image) for image in image_digests.images(image_digests.ROOT)}
    names = {image.rpartition("/")[2].partition(":")[0] for image in found}
    assert names == {
        "slurmctld",
        "slurmd",
        "slurmdbd",
        "slurmrestd",
        "login",
        "mariadb",
        "sidecars",
        "debian",
    }
    assert "docker.io/library/debian:forky-slim" in found
