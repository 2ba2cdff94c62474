"""The bundle has no secret, wherever one was put, and is useful all the same."""

import json

from sidecars.explain.core import bundle_contents
from sidecars.explain.core.records import Seen
from tests.unit.explain.core.building import (
    condition,
    controller,
    daemon,
    event,
    node,
    nodeset,
    pod,
    seen,
)

SECRET = "hunter2-XyZZy"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdW4iOiJzbHVybSJ9.c2lnbmF0dXJl"
PEM = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n-----END OPENSSH PRIVATE KEY-----"


def with_secrets() -> Seen:
    """A cluster with secrets in every place where a user could have put one."""
    worker = pod(
        "cpu-0",
        containerStatuses=[
            {
                "name": "slurmd",
                "state": {"terminated": {"message": f"login failed with password={SECRET}"}},
            }
        ],
    )
    worker["metadata"]["annotations"] = {
        "kubectl.kubernetes.io/last-applied-configuration": SECRET,
        "note": SECRET,
    }
    worker["spec"]["containers"] = [
        {
            "name": "slurmd",
            "image": "slurmd:26.05",
            "command": ["sh", "-c", f"connect {SECRET}"],
            "args": [f"--password={SECRET}", SECRET],
            "env": [{"name": "DB_PASSWORD", "value": SECRET}, {"name": "PLAIN", "value": SECRET}],
        }
    ]
    custom = controller(
        condition("Ready", "False", "Failed", f"the API server returned: token {JWT}")
    )
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
            "events": (
                event(
                    "Pod",
                    "a",
                    "Failed",
                    f"pull https://ada:{SECRET}@registry.example failed; {PEM}",
                ),
            ),
        },
    )


def test_no_file_of_the_bundle_has_a_secret() -> None:
    content = json.dumps(bundle_contents.bundle(with_secrets()))
    for secret in (SECRET, JWT, "b3BlbnNzaC1rZXk", "c2lnbmF0dXJl"):
        assert secret not in content


def test_the_test_would_find_them() -> None:
    found = with_secrets()
    for part in (
        found.kube.pods,
        found.kube.controllers,
        found.kube.nodesets,
        found.kube.events,
        found.slurm.config,
    ):
        assert SECRET in json.dumps(part)


def test_what_an_engineer_needs_is_kept() -> None:
    found = bundle_contents.bundle(with_secrets())
    assert found["pods.json"][0]["spec"]["containers"][0]["image"] == "slurmd:26.05"
    [custom] = [it for it in found["custom-resources.json"] if it["kind"] == "Controller"]
    assert custom["spec"]["jwtKeyRef"] == {"name": "slurm-auth-jwt", "key": "jwt.key"}
    assert "SlurmUser=slurm" in custom["spec"]["extraConf"]
    assert found["slurm-config.json"]["slurmctldhost"] == "slurm-controller-0"
    assert found["slurm-nodes.json"][0]["states"] == ["IDLE"]
    assert found["events.json"][0]["reason"] == "Failed"
