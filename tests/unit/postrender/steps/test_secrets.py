"""Secrets that are readable in the stream."""

from typing import Any

import pytest

from postrender.errors import PostrenderError
from postrender.report import Run
from tests.support.streams import applied, config_map, stream

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\n-----END OPENSSH PRIVATE KEY-----\n"


def rules(*given: dict[str, Any], **settings: Any) -> list[str]:
    run = Run()
    everything = dict.fromkeys(
        ("secret-object", "secret-env", "secret-private-key", "secret-text"), "warning"
    )
    applied(stream(*given), {"secrets": {"severity": everything, **settings}}, run=run)
    return [it.rule for it in run.findings]


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ({"kind": "Secret", "metadata": {"name": "a"}, "data": {"k": "dg=="}}, ["secret-object"]),
        (
            {"kind": "Secret", "metadata": {"name": "a"}, "stringData": {"k": "v"}},
            ["secret-object"],
        ),
        ({"kind": "Secret", "metadata": {"name": "a"}, "data": {}}, []),
        (config_map("a", data={"id": KEY}), ["secret-private-key"]),
        (
            config_map("a", data={"slurmdbd.conf": "DbdHost=a\nStoragePass=hunter2\n"}),
            ["secret-text"],
        ),
        (config_map("a", data={"sssd.conf": "ldap_default_authtok = hunter2\n"}), ["secret-text"]),
        (config_map("a", data={"slurmdbd.conf": "#StoragePass=x\nStoragePass=$PASS\n"}), []),
        (
            {
                "kind": "Pod",
                "spec": {"containers": [{"env": [{"name": "DB_PASSWORD", "value": "x"}]}]},
            },
            ["secret-env"],
        ),
        (
            {
                "kind": "Pod",
                "spec": {"containers": [{"env": [{"name": "DB_PASSWORD", "valueFrom": {}}]}]},
            },
            [],
        ),
        (
            {
                "kind": "Pod",
                "spec": {"containers": [{"env": [{"name": "PASSWORD_FILE", "value": "/x"}]}]},
            },
            [],
        ),
    ],
)
def test_each_kind_of_secret_is_found(given: dict[str, Any], want: list[str]) -> None:
    assert rules(given) == want


def test_a_secret_ends_the_run_with_its_place_and_without_its_value() -> None:
    run = Run()
    with pytest.raises(PostrenderError) as caught:
        applied(
            stream(config_map("a", data={"slurmdbd.conf": "StoragePass=hunter2\n"})),
            {"secrets": None},
            run=run,
        )
    assert [str(it).partition(" (")[0] for it in run.findings] == ["error: document 1"]
    assert "line 9, ConfigMap a: a password is in the stream" in str(run.findings[0])
    assert "hunter2" not in f"{caught.value}{run.findings}"


def test_allowed_objects_are_not_examined() -> None:
    secrets = [
        {"kind": "Secret", "metadata": {"name": name}, "data": {"k": "dg=="}} for name in ("a", "b")
    ]
    assert (
        rules(*secrets, {"kind": "List", "items": secrets}, allow=[{"kind": "Secret", "name": "a"}])
        == ["secret-object"] * 2
    )
