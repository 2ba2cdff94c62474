"""The bundle has no secret, wherever one was put, and is useful all the same."""

import json
import time
from typing import Any

import pytest

from sidecars.policy.explain import redaction
from sidecars.policy.explain.records import Seen
from tests.unit.policy.explain.building import condition, controller, daemon, event, node, nodeset, pod, seen

SECRET = "hunter2-XyZZy"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdW4iOiJzbHVybSJ9.c2lnbmF0dXJl"
PEM = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n-----END OPENSSH PRIVATE KEY-----"


def with_secrets() -> Seen:
    """A cluster with secrets in every place where a user could have put one."""
    worker = pod(
        "cpu-0",
        containerStatuses=[
            {"name": "slurmd", "state": {"terminated": {"message": f"login failed with password={SECRET}"}}}
        ],
    )
    worker["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": SECRET, "note": SECRET}
    worker["spec"]["containers"] = [
        {
            "name": "slurmd",
            "image": "slurmd:26.05",
            "command": ["sh", "-c", f"connect {SECRET}"],
            "args": [f"--password={SECRET}", SECRET],
            "env": [{"name": "DB_PASSWORD", "value": SECRET}, {"name": "PLAIN", "value": SECRET}],
        }
    ]
    custom = controller(condition("Ready", "False", "Failed", f"the API server returned: token {JWT}"))
    custom["spec"] = {
        "extraConf": f"StoragePass={SECRET}\nSlurmUser=slurm",
        "jwtKeyRef": {"name": "slurm-auth-jwt", "key": "jwt.key"},
        "slurmctld": {"env": [{"name": "X", "value": SECRET}], "args": [SECRET]},
        "inline": {"password": SECRET, "privateKey": PEM},
    }
    set_ = nodeset()
    set_["spec"]["template"] = {
        "metadata": {"annotations": {"a": SECRET}},
        "spec": {"containers": [{"command": [SECRET]}]},
    }
    return seen(
        {
            "nodes": (node("cpu-0", comment=f"api_key: {SECRET}", reason=f"bearer {JWT}"),),
            "config": {
                "accountingstoragepass": SECRET,
                "slurmctldhost": "slurm-controller-0",
                "authaltparameters": f"jwt_key={SECRET}",
            },
        },
        {
            "pods": (worker, daemon()),
            "controllers": (custom,),
            "nodesets": (set_,),
            "events": (event("Pod", "a", "Failed", f"pull https://ada:{SECRET}@registry.example failed; {PEM}"),),
        },
    )


def test_no_file_of_the_bundle_has_a_secret() -> None:
    content = json.dumps(redaction.bundle(with_secrets()))
    for secret in (SECRET, JWT, "b3BlbnNzaC1rZXk", "c2lnbmF0dXJl"):
        assert secret not in content


def test_the_test_would_find_them() -> None:
    found = with_secrets()
    for part in (found.kube.pods, found.kube.controllers, found.kube.nodesets, found.kube.events, found.slurm.config):
        assert SECRET in json.dumps(part)


def test_what_an_engineer_needs_is_kept() -> None:
    found = redaction.bundle(with_secrets())
    assert found["pods.json"][0]["spec"]["containers"][0]["image"] == "slurmd:26.05"
    [custom] = [it for it in found["custom-resources.json"] if it["kind"] == "Controller"]
    assert custom["spec"]["jwtKeyRef"] == {"name": "slurm-auth-jwt", "key": "jwt.key"}
    assert "SlurmUser=slurm" in custom["spec"]["extraConf"]
    assert found["slurm-config.json"]["slurmctldhost"] == "slurm-controller-0"
    assert found["slurm-nodes.json"][0]["states"] == ["IDLE"]
    assert found["events.json"][0]["reason"] == "Failed"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("password=abc other", "password=REDACTED other"),
        ("ldap_default_authtok = abc", "ldap_default_authtok = REDACTED"),
        ("bindpw abc", "bindpw REDACTED"),
        ("MYSQL_PWD=abc", "MYSQL_PWD=REDACTED"),
        ('"token": "abc def"', '"token": REDACTED'),
        ("DbdPass = 'x y' next", "DbdPass = REDACTED next"),
        (f"got {JWT}", "got REDACTED"),
        ("mysql://slurm:pw@db/slurm", "mysql://REDACTED@db/slurm"),
        ("mysql://slurm:p@ss@db/slurm", "mysql://REDACTED@db/slurm"),
        ("the password is: a b c", "the password is: REDACTED"),
        ("passphrase was correct horse\nnext", "passphrase was REDACTED\nnext"),
        ("password issued, and more", "password REDACTED, and more"),
        ("pwd=abc --pwd def", "pwd=REDACTED --pwd REDACTED"),
        ("AKIAIOSFODNN7EXAMPLE", "REDACTED"),
        ("https://b/o?X-Amz-Signature=0f1e&x=1&sig=a%2Fb", "https://b/o?X-Amz-Signature=REDACTED&x=1&sig=REDACTED"),
        ("ghp_0123456789abcdefABCDEF", "REDACTED"),
        ("AccountName=a;AccountKey=Zm9v/+==;", "AccountName=a;AccountKey=REDACTED;"),
        ("Set-Cookie: a=1; b=2\nnext", "Set-Cookie: REDACTED\nnext"),
        ("https://hooks.slack.com/services/T0/B0/x", "https://hooks.slack.com/REDACTED"),
        (f"key: {'Zm9v' * 16}", "key: REDACTED"),
        ('{"k": "Zm9v", "kid": "key-id"}', '{"k": REDACTED, "kid": "key-id"}'),
        (f"x_{JWT}", "x_REDACTED"),
        ("key: slurm, monkey=1", "key: slurm, monkey=1"),
        ("nothing to hide", "nothing to hide"),
    ],
)
def test_a_log_line_is_redacted(text: str, expected: str) -> None:
    assert redaction.text(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "a" * 20_000,
        "token" * 4_000,
        "eyJ" * 7_000,
        "eyJabcdef." * 2_000,
        "://a:" * 4_000,
        "://" + "a:@" * 7_000,
        "password" + " " * 20_000,
        'password "' * 2_000 + "'",
        "-----BEGIN " * 2_000,
        "key:" + " " * 20_000,
        "cookie " * 3_000,
    ],
    ids=lambda it: str(it)[:12],
)
def test_a_long_line_that_a_user_has_chosen_costs_milliseconds(text: str) -> None:
    began = time.process_time()
    redaction.text(text)
    assert time.process_time() - began < 0.3


def test_a_value_is_replaced_wherever_it_occurs() -> None:
    assert redaction.text(f"trying {SECRET} again", {SECRET}) == "trying REDACTED again"


@pytest.mark.parametrize("field", ["apiKey", "api_key", "privateKey", "private-key", "accountKey", "pwd"])
def test_a_field_that_contains_a_key_is_redacted(field: str) -> None:
    assert redaction.scrubbed({field: "abc"}) == {field: "REDACTED"}


def test_numbers_and_names_of_secrets_stay() -> None:
    kept: dict[str, Any] = {"secretRef": {"name": "a"}, "secretName": "b", "tokenExpirationSeconds": 5, "tokens": 3}
    assert redaction.scrubbed(kept) == kept
