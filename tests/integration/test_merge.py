"""Our merge beside the API server's own: its strategic merge patch of a Deployment, and what it
answers for pod templates on which nothing of the user's may be lost.
"""

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sidecars.workloads.merge import container, merge, pod_spec
from tests.cluster.control_plane import ControlPlane

Json = dict[str, Any]

DEPLOYMENTS = "/apis/apps/v1/namespaces/merging/deployments"
AS_IT_IS = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
)

names = st.sampled_from(["a", "b", "c"])
protocols = st.sampled_from(["TCP", "UDP"])


def items(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """Items of a list, whose fields with a default may be missing."""
    given = {name: it for name, it in fields.items() if name not in ("protocol", "operator")}
    return st.fixed_dictionaries(
        given, optional={name: it for name, it in fields.items() if name not in given}
    )


ports = items(containerPort=st.sampled_from([53, 80]), protocol=protocols)
variables = items(name=names, value=names)
mounts = items(name=st.sampled_from(["v", "w"]), mountPath=st.sampled_from(["/v", "/w"]))
spreads = items(
    topologyKey=names,
    whenUnsatisfiable=st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
    maxSkew=st.integers(1, 2),
    labelSelector=st.just({"matchLabels": {"app": "a"}}),
)
aliases = items(
    ip=st.sampled_from(["10.0.0.1", "10.0.0.2"]),
    hostnames=st.lists(names, min_size=1, max_size=2, unique=True),
)
tolerations = items(key=names, operator=st.just("Exists"))


def several(item: st.SearchStrategy[Json], key: str, *, distinct: bool) -> st.SearchStrategy[Any]:
    """A list of items, each with another value of its merge key if they are `distinct`."""
    unique = (lambda it: it[key]) if distinct else None
    return st.lists(item, max_size=3, unique_by=unique)


def pods(*, distinct: bool) -> st.SearchStrategy[Json]:
    """PodSpecs. A patch that changes one of two items with one merge key has no clear meaning, so
    those to be patched have `distinct` ones.
    """
    containers = st.fixed_dictionaries(
        {"name": st.sampled_from(["one", "two"]), "image": names},
        optional={
            "ports": several(ports, "containerPort", distinct=distinct),
            "env": several(variables, "name", distinct=distinct),
            "volumeMounts": several(mounts, "mountPath", distinct=distinct),
            "args": st.lists(names, max_size=2),
            "resources": st.just({"limits": {"cpu": "1"}}),
        },
    )
    both = st.lists(containers, min_size=1, max_size=2, unique_by=lambda it: it["name"])
    return st.fixed_dictionaries(
        {"containers": both},
        optional={
            "topologySpreadConstraints": several(spreads, "topologyKey", distinct=distinct),
            "hostAliases": several(aliases, "ip", distinct=distinct),
            "imagePullSecrets": several(items(name=names), "name", distinct=distinct),
            "tolerations": st.lists(tolerations, max_size=2),
            "dnsConfig": st.fixed_dictionaries({"searches": st.lists(names, max_size=2)}),
            "nodeSelector": st.dictionaries(names, names, max_size=2),
        },
    )


def deployment(pod: Json) -> Json:
    volumes: list[Json] = [{"name": name, "emptyDir": {}} for name in ("v", "w")]
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"volumes": volumes, **pod}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "merged", "namespace": "merging"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template},
    }


class Server:
    """The API server, as the administrator."""

    def __init__(self, connection: http.client.HTTPSConnection) -> None:
        self.connection = connection

    def ask(
        self, method: str, path: str, body: Json, content_type: str = "application/json"
    ) -> tuple[int, Json]:
        """Status and answer of a request."""
        content = json.dumps(body)
        self.connection.request(method, path, content, {"Content-Type": content_type})
        answer = self.connection.getresponse()
        return answer.status, json.loads(answer.read())

    def stored(self, pod: Json) -> Json | None:
        """The Deployment with this pod, which replaces the former one; None if it is refused."""
        status, live = self.ask("PUT", f"{DEPLOYMENTS}/merged", deployment(pod))
        return live if status == 200 else None


@pytest.fixture(scope="module")
def server(control_plane: ControlPlane) -> Iterator[Server]:
    with closing(control_plane.connection(60)) as connection:
        server = Server(connection)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "merging"}}
        assert server.ask("POST", "/api/v1/namespaces", namespace)[0] == 201
        first = deployment({"containers": [{"name": "one", "image": "a"}]})
        assert server.ask("POST", DEPLOYMENTS, first)[0] == 201
        yield server


@AS_IT_IS
@given(pods(distinct=True), pods(distinct=False))
def test_a_strategic_merge_is_what_the_api_server_makes_of_the_patch(
    server: Server, base: Json, pod: Json
) -> None:
    live = server.stored(base)
    assume(live is not None)
    assert live is not None
    patch = {"spec": {"template": {"spec": pod}}}
    place = f"{DEPLOYMENTS}/merged?dryRun=All"
    theirs = server.ask("PATCH", place, patch, "application/strategic-merge-patch+json")
    ours = server.ask("PUT", place, merge(live, patch, "Deployment"))
    assert ours[0] == theirs[0]
    if ours[0] == 200:
        assert ours[1]["spec"] == theirs[1]["spec"]


def distinct(values: list[Json], *keys: str) -> list[Json]:
    """The first item for each value of the keys."""
    found = {tuple(it.get(key, "TCP") for key in keys): it for it in reversed(values)}
    return list(found.values())


@AS_IT_IS
@given(
    st.lists(ports, max_size=4), st.lists(spreads, max_size=4), st.lists(aliases, max_size=4),
    st.lists(variables, max_size=4),
)  # fmt: skip
def test_the_api_server_applies_a_pod_template_with_all_that_the_user_wrote(
    server: Server, port: list[Json], spread: list[Json], alias: list[Json], env: list[Json]
) -> None:
    user = {
        "ports": distinct(port, "containerPort", "protocol"),
        "env": env,
    }
    pod = {
        "topologySpreadConstraints": distinct(spread, "topologyKey", "whenUnsatisfiable"),
        "hostAliases": alias,
    }
    ours = {
        "name": "slurmd",
        "image": "slurmd",
        "ports": [{"name": "slurmd", "containerPort": 53, "protocol": "TCP"}],
    }
    merged = pod_spec({"containers": [container(ours, user, "spec.slurmd")]}, pod, "spec")
    applied = deployment(merged)
    applied["metadata"]["name"] = "applied"
    place = f"{DEPLOYMENTS}/applied?dryRun=All&fieldManager=test&force=true"
    status, answer = server.ask("PATCH", place, applied, "application/apply-patch+yaml")
    assert status in (200, 201), answer
    found = answer["spec"]["template"]["spec"]
    slurmd = found["containers"][0]
    kept = {(it["containerPort"], it["protocol"]) for it in slurmd["ports"]}
    wanted = {(it["containerPort"], it.get("protocol", "TCP")) for it in user["ports"]}
    assert kept == wanted | {(53, "TCP")}
    assert any(it.get("name") == "slurmd" for it in slurmd["ports"])
    assert found.get("topologySpreadConstraints", []) == pod["topologySpreadConstraints"]
    assert {it["name"]: it["value"] for it in slurmd.get("env", ())} == {
        it["name"]: it["value"] for it in env
    }
    named = {(it["ip"], name) for it in found.get("hostAliases", ()) for name in it["hostnames"]}
    assert named == {(it["ip"], name) for it in alias for name in it["hostnames"]}
