"""Which change wakes which LoginSet."""

from typing import Any

import msgspec
import pytest

from sidecars import objects
from tests.support.operator_parts import NAMESPACE, Parts

pytestmark = pytest.mark.looptime
KEY = (NAMESPACE, "login")


def pod(version: str, spec: Any = None, **status: str) -> objects.Pod:
    labels = {"app.kubernetes.io/instance": "login"}
    metadata = {
        "namespace": NAMESPACE,
        "name": "p",
        "uid": "p",
        "resourceVersion": version,
        "labels": labels,
    }
    return msgspec.convert(
        {"metadata": metadata, "spec": spec or {}, "status": status}, objects.Pod
    )


async def test_a_login_pod_s_address_wakes_its_loginset_and_the_rest_of_its_status_does_not() -> (
    None
):
    parts = Parts()
    store = parts.runtime.caches.login_pods.store
    store.put(pod("1", phase="Pending"))
    assert await parts.woken() == {"loginsets": {KEY}}
    store.put(pod("2", phase="Pending", reason="Whatever"))
    assert await parts.woken() == {}
    store.put(pod("3", phase="Running", podIP="10.0.0.1"))
    assert await parts.woken() == {"loginsets": {KEY}}
