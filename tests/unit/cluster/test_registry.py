"""What REGISTRY may be, what a refusal is answered with, and where the pushed images appear in the
values.
"""

import json
from base64 import b64decode
from pathlib import Path

import pytest
import yaml

from schemas.image_digests import chart_images
from tests.cluster import registry
from tests.cluster.errors import ClusterError
from tests.cluster.images import IMAGES
from tests.cluster.install import CHARTS
from tests.cluster.registry import (
    REMEDIES,
    Credentials,
    PushError,
    Registry,
    pinned,
    pull_secret,
    refusal,
    split,
)

GO = Path(__file__).parents[2] / "cluster" / "push" / "main.go"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("registry.example.com/team", ("registry.example.com", "team")),
        ("registry.example.com:5000/team/slurm/", ("registry.example.com:5000", "team/slurm")),
        ("registry.example.com", ("registry.example.com", "")),
        ("localhost:5000", ("localhost:5000", "")),
        ("localhost/a", ("localhost", "a")),
        ("docker.io/alice", ("docker.io", "alice")),
        ("10.0.0.1:5000/team", ("10.0.0.1:5000", "team")),
        ("[fd00::1]:5000/team", ("[fd00::1]:5000", "team")),
    ],
)
def test_a_registry_is_a_host_and_a_path(text: str, found: tuple[str, str]) -> None:
    assert split(text) == found


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("https://registry.example.com/team", "without https://"),
        ("team", "host first"),
        ("team/slurm", "host first"),
        ("registry.example.com/Team", "lower case"),
        ("registry.example.com/team:26.05", "without a tag"),
        ("registry.example.com/a//b", "lower case"),
    ],
)
def test_a_wrong_name_is_refused_with_an_example(text: str, word: str) -> None:
    with pytest.raises(ClusterError, match=r"registry\.example\.com/team") as caught:
        split(text)
    assert word in str(caught.value)
    assert text in str(caught.value)


def test_without_registry_none_is_chosen_and_a_certificate_alone_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("REGISTRY", raising=False)
    monkeypatch.delenv("REGISTRY_CA", raising=False)
    assert registry.chosen() is None
    monkeypatch.setenv("REGISTRY_CA", "/ca.crt")
    with pytest.raises(ClusterError, match="REGISTRY is not"):
        registry.chosen()


def test_the_certificate_of_an_authority_must_exist(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REGISTRY", "registry.example.com/team")
    monkeypatch.setenv("REGISTRY_CA", str(tmp_path / "ca.crt"))
    with pytest.raises(ClusterError, match="no such file"):
        registry.chosen()
    (tmp_path / "ca.crt").write_text("")
    assert registry.chosen() == Registry("registry.example.com", "team", (tmp_path / "ca.crt",))


def test_each_kind_of_error_that_the_program_reports_has_an_entry() -> None:
    kinds = {
        line.split('"')[1]
        for line in GO.read_text().splitlines()
        if line.strip().startswith('return "')
    }
    assert kinds == set(REMEDIES)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("unauthorized", ["docker login registry.example.com"]),
        ("forbidden", ["right to push", "docker login registry.example.com"]),
        ("missing", ["registry.example.com/team", "slurmd, login"]),
        ("authority", ["REGISTRY_CA="]),
        ("proxy", ["HTTPS_PROXY", "add registry.example.com to NO_PROXY"]),
        ("unreachable", ["network"]),
        ("full", ["no space left"]),
    ],
)
def test_a_refusal_names_the_registry_the_remedy_and_what_the_registry_answered(
    kind: str, words: list[str]
) -> None:
    found = str(
        refusal(
            Registry("registry.example.com", "team"),
            PushError(kind, "the answer"),
            ["slurmd", "login"],
        )
    )
    assert found.startswith("nothing can be pushed to registry.example.com/team. ")
    assert found.endswith("\nthe answer")
    assert [word for word in words if word not in found] == []


@pytest.mark.parametrize("chart", ["slurm", "slurm-operator"])
def test_each_image_of_a_chart_is_pinned_by_the_digest_that_was_pushed(chart: str) -> None:
    digests = {
        f"{name}:{tag}": f"sha256:{number:064x}"
        for number, (name, tag) in enumerate(IMAGES.items())
    }
    values = yaml.safe_load(pinned(CHARTS / chart, digests))
    for place, image in chart_images(CHARTS / chart).items():
        at = values
        for key in place:
            at = at[key]
        name = image.name.rpartition("/")[2]
        assert at == {
            "repository": image.repository,
            "tag": f"{image.tag}@{digests[f'{name}:{image.tag}']}",
        }


@pytest.mark.parametrize(
    ("host", "server"),
    [
        ("registry.example:5000", "registry.example:5000"),
        ("docker.io", "https://index.docker.io/v1/"),
    ],
)
def test_the_pull_secret_has_the_password_under_the_name_that_kubelets_look_for(
    host: str, server: str
) -> None:
    secret = pull_secret("registry-credentials", "slurm", host, Credentials("alice", "wonderland"))
    assert secret["metadata"] == {"name": "registry-credentials", "namespace": "slurm"}
    assert secret["type"] == "kubernetes.io/dockerconfigjson"
    (entry,) = json.loads(b64decode(secret["data"][".dockerconfigjson"]))["auths"].items()
    assert entry[0] == server
    assert b64decode(entry[1]["auth"]) == b"alice:wonderland"
