"""Everything that is rendered, with every overlay, against Kubernetes' own schemas: no field that
doesn't exist.
"""

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

from sidecars.workloads import controller as controllers
from sidecars.workloads import loginset as loginsets
from sidecars.workloads import nodeset as nodesets
from sidecars.workloads import restapi as restapis
from sidecars.workloads.facts import digest
from sidecars.workloads.resources import Manifest, NodeSet
from tests.support import builders
from tests.support.builders import controller, loginset, nodeset, restapi

# It has no type information.
kubernetes_validate: Any = importlib.import_module("kubernetes_validate")

VERSION = "1.37"

SERVICE = {"spec": {"type": "NodePort"}, "port": 80, "nodePort": 30080}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
CLAIM_TEMPLATE = {"metadata": {"name": "data"}, "spec": CLAIM}


def of_controllers() -> Iterator[tuple[str, list[Manifest]]]:
    """slurmctld in every shape."""
    maps = {"files": {"gres.conf": digest("")}, "jwks": {"k": digest("")}}
    shapes: dict[str, dict[str, Any]] = {
        "new claim": {"persistence": {"enabled": True, **CLAIM}, "service": SERVICE},
        "existing claim": {"persistence": {"enabled": True, "existingClaim": "c"}},
        "no claim": {"persistence": {"enabled": False}},
        "standbys": {
            "ha": {"enabled": True},
            "persistence": {"enabled": True, "existingClaim": "c"},
        },
        "files": {
            "configFileRefs": [{"name": "files"}],
            "jwksKeyRef": {"name": "jwks", "key": "k"},
        },
        "external": {"external": True, "externalConfig": {"host": "h", "port": 1}},
    }
    for name, spec in shapes.items():
        yield (
            f"slurmctld, {name}",
            controllers.objects(controller(**spec), (), builders.facts(config_maps=maps)),
        )


def worker(of: NodeSet) -> list[Manifest]:
    """All that a NodeSet needs for one pod."""
    facts = builders.facts()
    revision = nodesets.revision(of, controller(), facts)
    return [
        nodesets.pod(
            of, nodesets.pod_template(of, controller(), facts), 0, revision.hash, kube_node="n"
        ),
        nodesets.daemon_pod(
            of, nodesets.pod_template(of, controller(), facts), "n.example.com", "n", revision.hash
        ),
        nodesets.revision_object(of, revision, 1),
        *nodesets.claims(of, 0),
        *nodesets.objects(of, controller(), facts),
        *nodesets.shared_objects(controller(), [of], facts),
    ]


def of_nodesets() -> Iterator[tuple[str, list[Manifest]]]:
    """Worker pods in every shape."""
    shapes: dict[str, dict[str, Any]] = {
        "plain": {"slurmd": {"image": "i"}},
        "shared node": {"slurmd": {"image": "i"}, "oversubscribeNode": True},
        "host network": {"slurmd": {"image": "i"}, "template": {"spec": {"hostNetwork": True}}},
        "ssh": {"slurmd": {"image": "i"}, "ssh": {"enabled": True, "sssdConfRef": builders.SSSD}},
        "claims": {"slurmd": {"image": "i"}, "volumeClaimTemplates": [CLAIM_TEMPLATE]},
    }
    for name, spec in shapes.items():
        yield f"slurmd, {name}", worker(nodeset(**spec))


def of_others() -> Iterator[tuple[str, list[Manifest]]]:
    """slurmrestd and login nodes."""
    facts = builders.facts()
    keys = {
        f"ssh_host_{kind}_key{end}": "k"
        for kind in loginsets.HOST_KEY_TYPES
        for end in ("", ".pub")
    }
    plain = loginset(login={"image": "i"}, sssdConfRef=None, service=SERVICE)
    yield "slurmrestd", restapis.objects(restapi(service=SERVICE), controller(), facts, {})
    yield "login", loginsets.objects(plain, controller(), facts)
    yield "login, sssd", loginsets.objects(loginset(login={"image": "i"}), controller(), facts)
    yield "login, host keys", [loginsets.host_keys_secret(plain, keys)]


CASES = dict([*of_controllers(), *of_nodesets(), *of_others()])


@pytest.mark.parametrize("case", CASES)
def test_what_is_rendered_is_valid(case: str) -> None:
    assert CASES[case]
    for manifest in CASES[case]:
        kubernetes_validate.validate(manifest, VERSION, strict=True)


@pytest.mark.parametrize("case", CASES)
def test_no_object_goes_without_namespace_and_owner(case: str) -> None:
    for manifest in CASES[case]:
        metadata = manifest["metadata"]
        assert metadata["namespace"] == "slurm"
        assert metadata.get("ownerReferences") or manifest["kind"] == "PersistentVolumeClaim"
