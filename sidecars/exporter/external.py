"""The API external.metrics.k8s.io/v1beta1 for the aggregation layer: the wanted replicas of a
NodeSet.

Unknown or old data is an error and never a number, so that a HorizontalPodAutoscaler changes
nothing. Any client that reaches the port may read, as at `/metrics`, unless the server asks for a
certificate of API servers.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime

from aiohttp import web

from sidecars.exporter.families import WANTED_REPLICAS
from sidecars.serving import Handler

GROUP, VERSION = "external.metrics.k8s.io", "v1beta1"
METRIC = WANTED_REPLICAS.name
_SELECTOR = re.compile(r"\s*nodeset\s*==?\s*([-a-z0-9.]{1,253})\s*")


class NoData(Exception):
    """The wanted replicas aren't known. The text describes why."""


class NoNodeSet(Exception):
    """The exporter computes nothing for a NodeSet of that name."""


Wanted = Callable[[str], tuple[int, float]]
"""The wanted replicas of a NodeSet, and when Slurm was read. Raises NoData and NoNodeSet."""


def application(
    wanted: Wanted, namespace: str, names: frozenset[str] = frozenset()
) -> web.Application:
    """Return the API for the NodeSets of one namespace. `names`: of certificates that may read;
    empty: all may.
    """

    @web.middleware
    async def named(request: web.Request, handler: Handler) -> web.StreamResponse:
        if names and not names & _common_names(request):
            return _status(
                403, "Forbidden", f"only {', '.join(sorted(names))} may read: ask the API server"
            )
        return await handler(request)

    async def values(request: web.Request) -> web.Response:
        asked, name = request.match_info["namespace"], request.match_info["metric"]
        if name != METRIC:
            return _status(404, "NotFound", f"no metric {name!r} exists; the exporter has {METRIC}")
        if asked != namespace:
            return _status(
                404,
                "NotFound",
                f"the exporter has the NodeSets of namespace {namespace!r}, not {asked!r}",
            )
        selector = request.query.get("labelSelector", "")
        found = _SELECTOR.fullmatch(selector)
        if found is None:
            remedy = "give matchLabels with one label, `nodeset: NAME`"
            return _status(400, "BadRequest", f"the selector is {selector!r}: {remedy}")
        try:
            replicas, at = wanted(found[1])
        except NoNodeSet as fault:
            return _status(404, "NotFound", str(fault))
        except NoData as fault:
            return _status(503, "ServiceUnavailable", str(fault))
        item = {
            "metricName": METRIC,
            "metricLabels": {"nodeset": found[1]},
            "timestamp": datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "value": str(replicas),
        }
        return _object("ExternalMetricValueList", f"{GROUP}/{VERSION}", metadata={}, items=[item])

    async def resources(_: web.Request) -> web.Response:
        metric = {
            "name": METRIC,
            "singularName": "",
            "namespaced": True,
            "kind": "ExternalMetricValueList",
        }
        return _object(
            "APIResourceList",
            "v1",
            groupVersion=f"{GROUP}/{VERSION}",
            resources=[{**metric, "verbs": ["get"]}],
        )

    async def group(_: web.Request) -> web.Response:
        return _object("APIGroup", "v1", **_GROUP)

    async def groups(_: web.Request) -> web.Response:
        return _object("APIGroupList", "v1", groups=[_GROUP])

    app = web.Application(middlewares=[named])
    app.router.add_get("/apis", groups)
    app.router.add_get(f"/apis/{GROUP}", group)
    app.router.add_get(f"/apis/{GROUP}/{VERSION}", resources)
    app.router.add_get(f"/apis/{GROUP}/{VERSION}/namespaces/{{namespace}}/{{metric}}", values)
    return app


def _common_names(request: web.Request) -> set[str]:
    """Return the common names of the client's certificate, which TLS has verified."""
    certificate = request.get_extra_info("peercert") or {}
    return {
        value
        for part in certificate.get("subject", ())
        for key, value in part
        if key == "commonName"
    }


_PREFERRED = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
_GROUP = {"name": GROUP, "versions": [_PREFERRED], "preferredVersion": _PREFERRED}


def _object(kind: str, version: str, **fields: object) -> web.Response:
    return web.json_response({"kind": kind, "apiVersion": version, **fields})


def _status(code: int, reason: str, message: str) -> web.Response:
    status = {
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    return web.json_response({"kind": "Status", "apiVersion": "v1", **status}, status=code)
