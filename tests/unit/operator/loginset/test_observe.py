"""What a pass over a LoginSet looks at: `sidecars.operator.loginset.observe`."""

from typing import Any

import msgspec

from sidecars import objects
from sidecars.operator.loginset.observe import addresses


def pod(version: str, spec: Any = None, **status: str) -> objects.Pod:
    metadata = {"namespace": "slurm", "name": "p", "uid": "p", "resourceVersion": version}
    return msgspec.convert(
        {"metadata": metadata, "spec": spec or {}, "status": status}, objects.Pod
    )


def test_only_pods_that_run_on_the_pod_network_have_an_address_of_their_own() -> None:
    running = {"phase": "Running", "podIP": "10.0.0.1"}
    assert addresses([pod("1", **running)]) == {"p": "10.0.0.1"}
    assert addresses([pod("1", {"hostNetwork": True}, **running)]) == {}
    assert addresses([pod("1", phase="Pending", podIP="10.0.0.1")]) == {}
    assert addresses([pod("1", phase="Running")]) == {}
