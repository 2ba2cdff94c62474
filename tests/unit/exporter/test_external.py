"""The API external.metrics.k8s.io: a number only if it is known."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from sidecars.exporter.external import GROUP, METRIC, VERSION, NoData, NoNodeSet, application
from sidecars.exporter.families import OWN

ROOT = f"/apis/{GROUP}/{VERSION}"


def wanted(nodeset: str) -> tuple[int, float]:
    if nodeset == "old":
        raise NoData("the jobs are unknown")
    if nodeset != "cpu":
        raise NoNodeSet(f"no NodeSet {nodeset!r}")
    return 4, 1_000_000.0


async def get(path: str, **query: str) -> tuple[int, Any]:
    async with TestClient(TestServer(application(wanted, "slurm"))) as client:
        answer = await client.get(path, params=query)
        return answer.status, await answer.json()


async def test_the_wanted_replicas_of_a_nodeset_are_one_value() -> None:
    status, found = await get(f"{ROOT}/namespaces/slurm/{METRIC}", labelSelector="nodeset=cpu")
    assert status == 200
    assert found["kind"] == "ExternalMetricValueList"
    assert found["items"] == [
        {
            "metricName": METRIC,
            "metricLabels": {"nodeset": "cpu"},
            "timestamp": "1970-01-12T13:46:40Z",
            "value": "4",
        }
    ]


@pytest.mark.parametrize(
    ("path", "selector", "status", "text"),
    [
        (f"slurm/{METRIC}", "nodeset=old", 503, "the jobs are unknown"),
        (f"slurm/{METRIC}", "nodeset=none", 404, "no NodeSet 'none'"),
        (f"slurm/{METRIC}", "", 400, "give matchLabels with one label"),
        (f"slurm/{METRIC}", "nodeset in (a,b)", 400, "give matchLabels with one label"),
        (f"other/{METRIC}", "nodeset=cpu", 404, "namespace 'slurm', not 'other'"),
        ("slurm/requests", "nodeset=cpu", 404, f"the exporter has {METRIC}"),
    ],
)
async def test_anything_else_is_an_error_and_no_number(
    path: str, selector: str, status: int, text: str
) -> None:
    found, body = await get(f"{ROOT}/namespaces/{path}", labelSelector=selector)
    assert (found, body["kind"], body["status"]) == (status, "Status", "Failure")
    assert text in body["message"]


async def test_the_api_describes_itself() -> None:
    assert (await get("/apis"))[1]["groups"][0]["name"] == GROUP
    assert (await get(f"/apis/{GROUP}"))[1]["preferredVersion"]["version"] == VERSION
    _, resources = await get(ROOT)
    assert [it["name"] for it in resources["resources"]] == [METRIC]


def test_the_recipes_ask_for_metrics_that_exist_and_do_not_take_missing_data_for_zero() -> None:
    page = (Path(__file__).parents[3] / "docs/autoscaling.md").read_text(encoding="utf-8")
    blocks = re.findall(
        r"^```yaml(?: title=.(?:prometheus|scaled).*?)?\n(.*?)^```", page, re.MULTILINE | re.DOTALL
    )
    documents = [document for text in blocks for document in yaml.safe_load_all(text)]
    adapter = next(it for it in documents if it["kind"] == "ConfigMap")
    rules = yaml.safe_load(adapter["data"]["config.yaml"])
    recipes = [
        it for it in documents if it["kind"] in {"HorizontalPodAutoscaler", "ScaledObject"}
    ] + [rules]
    asked = {name for recipe in recipes for name in re.findall(r"slurm_[a-z_]+", str(recipe))}
    assert asked == {METRIC}
    assert METRIC in {metric.name for metric in OWN}
    by_kind = {recipe.get("kind", "rules"): recipe for recipe in recipes}
    assert set(by_kind) == {"HorizontalPodAutoscaler", "ScaledObject", "rules"}
    (trigger,) = by_kind["ScaledObject"]["spec"]["triggers"]
    assert trigger["metadata"]["ignoreNullValues"] == "false"
    assert by_kind["ScaledObject"]["spec"]["fallback"]["behavior"] == "currentReplicas"
    labels = {label for metric in OWN if metric.name == METRIC for label in metric.labels}
    assert labels == {"nodeset"}
    for query in (
        trigger["metadata"]["query"],
        by_kind["rules"]["externalRules"][0]["metricsQuery"],
    ):
        assert not re.search(r"\bor\b|vector\(|absent", query)


async def test_only_the_named_clients_may_read(monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"{ROOT}/namespaces/slurm/{METRIC}"
    app = application(wanted, "slurm", frozenset({"front-proxy-client"}))
    certificate: dict[str, Any] = {}
    monkeypatch.setattr(
        web.Request, "get_extra_info", lambda _, name: certificate if name == "peercert" else None
    )
    async with TestClient(TestServer(app)) as client:
        for subject, status in (
            ((), 403),
            ((("organizationName", "front-proxy-client"),), 403),
            ((("commonName", "kubelet"),), 403),
            ((("commonName", "front-proxy-client"),), 200),
        ):
            certificate["subject"] = (subject,)
            async with client.get(path, params={"labelSelector": "nodeset=cpu"}) as answer:
                assert answer.status == status
