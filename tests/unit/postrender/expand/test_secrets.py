"""The Job that generates keys."""

import json
from typing import Any

import pytest

from postrender.errors import PostrenderError
from postrender.expand import secrets
from sidecars.workloads.assembly import find
from sidecars.workloads.resources import Manifest
from tests.unit.postrender.expand import streams


def rendered(*documents: Manifest) -> list[Manifest]:
    return secrets.objects(streams.cluster(*documents), streams.SITE)


def token(**spec: Any) -> Manifest:
    return streams.custom(
        "Token", "ci", username="ci", jwtKeyRef={"name": "slurm-auth-jwt", "key": "jwt.key"}, **spec
    )


def resources(found: list[Manifest]) -> list[tuple[str, str]]:
    items = json.loads(find(found, "ConfigMap")["data"]["resources.json"])
    return [(it["kind"], it["metadata"]["name"]) for it in items]


def test_a_job_generates_what_the_stream_does_not_contain() -> None:
    documents = streams.stream(streams.accounting(), streams.generated("mariadb", "password"))
    found = rendered(*documents)
    kinds = ["ServiceAccount", "Role", "RoleBinding", "ConfigMap", "Job"]
    assert [it["kind"] for it in found] == kinds
    assert resources(found) == [
        ("Controller", "slurm"),
        ("Accounting", "slurm"),
        ("LoginSet", "slurm-login-slinky"),
    ]
    [_, named, stateful_sets] = find(found, "Role")["rules"]
    assert named["resourceNames"] == [
        "mariadb",
        "slurm-accounting",
        "slurm-auth-jwt",
        "slurm-auth-slurm",
        "slurm-login-slinky-ssh-host-keys",
    ]
    assert stateful_sets["resourceNames"] == ["slurm-accounting", "slurm-controller"]


def test_the_job_pulls_its_image_with_the_secrets_of_slurmctlds_pods() -> None:
    template = {"spec": {"imagePullSecrets": [{"name": "registry"}]}}
    others = [it for it in streams.stream(token(refresh=True)) if it["kind"] != "Controller"]
    found = rendered(*others, streams.controller(template=template))
    of_job = find(found, "Job")["spec"]["template"]["spec"]
    of_cron_job = find(found, "CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert of_job["imagePullSecrets"] == of_cron_job["imagePullSecrets"] == [{"name": "registry"}]


def test_no_job_runs_where_everything_is_in_the_stream() -> None:
    assert rendered(*streams.known_keys(), streams.controller(), streams.nodeset()) == []


def test_the_job_has_another_name_when_there_is_something_else_to_generate() -> None:
    def name(*documents: Manifest) -> str:
        return str(find(rendered(*documents), "Job")["metadata"]["name"])

    assert name(*streams.stream()) == name(*streams.stream(streams.secret("other", key="x")))
    assert name(*streams.stream()) != name(*streams.stream(token(refresh=False)))


def test_a_renewed_token_has_a_cron_job_with_the_same_pod() -> None:
    found = rendered(*streams.stream(token()))
    job, cron_job = find(found, "Job"), find(found, "CronJob")
    assert cron_job["spec"]["jobTemplate"]["spec"]["template"] == job["spec"]["template"]
    assert ("Token", "ci") in resources(found)
    assert "slurm-ci" not in str(find(found, "Role"))
    assert "ci-jwt-ci" in find(found, "Role")["rules"][1]["resourceNames"]


def test_a_job_that_hangs_ends_and_that_of_the_cron_job_before_the_next_one() -> None:
    found = rendered(*streams.stream(token()))
    cron_job = find(found, "CronJob")["spec"]
    assert find(found, "Job")["spec"]["activeDeadlineSeconds"] == 3600
    assert (cron_job["concurrencyPolicy"], cron_job["schedule"]) == ("Forbid", "*/5 * * * *")
    assert cron_job["jobTemplate"]["spec"]["activeDeadlineSeconds"] < 5 * 60


def test_a_lifetime_that_cannot_be_renewed_in_time_is_refused() -> None:
    with pytest.raises(
        PostrenderError, match=r"Token slurm/ci: spec\.lifetime: 5m is too short .* at least 600s"
    ):
        rendered(*streams.stream(token(lifetime="5m")))
    assert rendered(*streams.stream(token(lifetime="5m", refresh=False)))
