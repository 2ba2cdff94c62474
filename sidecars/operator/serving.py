"""What the operator serves: /healthz and /readyz for the kubelet, /metrics for Prometheus, plain or
guarded.
"""

import hashlib
import ssl
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web

from sidecars import serving
from sidecars.generated import GenerationError, certificate
from sidecars.kube import ApiError, Client, Resource, Unreachable
from sidecars.operator.settings import Settings, address

TOKEN_REVIEWS = Resource(
    "authentication.k8s.io", "v1", "TokenReview", "tokenreviews", namespaced=False
)
SUBJECT_ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False
)

REMEMBER_SECONDS = 60.0


class Guard:
    """Lets through whoever may `get` the path /metrics by Kubernetes' rules; remembers answers for
    a minute.
    """

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._answers: dict[str, tuple[float, bool]] = {}

    async def allows(self, token: str) -> bool:
        """Return whether the bearer of the token may read metrics, or False when the API server
        doesn't say so.
        """
        name = hashlib.sha256(token.encode()).hexdigest()
        until, answer = self._answers.get(name, (0.0, False))
        if self._clock() >= until:
            try:
                answer = await self._ask(token)
            except (ApiError, Unreachable):
                return False
            now = self._clock()
            self._answers = {key: value for key, value in self._answers.items() if value[0] > now}
            self._answers[name] = (now + REMEMBER_SECONDS, answer)
        return answer

    async def _ask(self, token: str) -> bool:
        review = {
            "apiVersion": TOKEN_REVIEWS.api_version,
            "kind": "TokenReview",
            "spec": {"token": token},
        }
        status = (await self._client.create(TOKEN_REVIEWS, review))["status"]
        if not status.get("authenticated"):
            return False
        access = {
            "apiVersion": SUBJECT_ACCESS_REVIEWS.api_version,
            "kind": "SubjectAccessReview",
            "spec": {
                "user": status["user"].get("username", ""),
                "groups": status["user"].get("groups", []),
                "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
            },
        }
        return bool(
            (await self._client.create(SUBJECT_ACCESS_REVIEWS, access))["status"].get("allowed")
        )


async def serve(settings: Settings, client: Client) -> Callable[[], Awaitable[None]]:
    """Serve what the settings ask for; returns what ends it. Raises OSError for a port that is
    taken.
    """
    guard = Guard(client) if settings.metrics_secure else None

    async def measured(request: web.Request) -> web.Response:
        if guard is not None:
            kind, _, token = request.headers.get("Authorization", "").partition(" ")
            if kind != "Bearer" or not token:
                raise web.HTTPUnauthorized(text="a bearer token is needed\n")
            if not await guard.allows(token):
                raise web.HTTPForbidden(
                    text="this token may not get /metrics: bind it to the metrics-reader role\n"
                )
        return await serving.measurements(request)

    health, measurements = web.Application(), web.Application()
    serving.add_probes(health)
    measurements.router.add_get("/metrics", measured)
    ends: list[Callable[[], Awaitable[None]]] = []

    async def end() -> None:
        for it in ends:
            await it()

    try:
        for app, where, tls in (
            (health, settings.health_addr, None),
            (
                measurements,
                settings.metrics_addr,
                await self_signed() if guard is not None else None,
            ),
        ):
            place = address(where)
            if place is not None:
                ends.append(await serving.serve(app, *place, tls))
    except OSError:
        await end()
        raise
    return end


async def self_signed() -> ssl.SSLContext:
    """TLS with a certificate generated for this process. Raises OSError if openssl is missing or
    fails.
    """
    try:
        made = await certificate("slurm-operator", 3650)
    except GenerationError as error:
        raise OSError(f"no certificate for the metrics: {error}") from error
    with tempfile.TemporaryDirectory() as folder:
        pem = Path(folder) / "certificate.pem"
        pem.write_text("".join(made))
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(pem)
        return context
