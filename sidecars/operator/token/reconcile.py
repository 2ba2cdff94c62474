"""One pass over one Token."""

import contextlib

from sidecars.custom_resources import TOKENS
from sidecars.kube import SECRETS, Manifest, NotFound
from sidecars.operator.runtime import workload
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.token import observe
from sidecars.policy import token as policy
from sidecars.policy.conditions import timestamp
from sidecars.policy.reasons import EventReason, Ready
from sidecars.slurm.tokens import sign
from sidecars.workloads import references
from sidecars.workloads import token as render
from sidecars.workloads.resources import ResourceError, Token, read


async def reconcile(runtime: Runtime, key: Key) -> float | None:
    """Have a valid token in the Secret; report. Returns the seconds until the token is to be
    renewed.
    """
    namespace, _ = key
    manifest = runtime.caches.tokens.store.get(*key)
    if manifest is None or manifest["metadata"].get("deletionTimestamp"):
        return None
    times: dict[str, str] = {}
    failure: NotUsableError | None = None
    try:
        token = read(Token, manifest)
        username = render.username(token)
        await runtime.contents.read(references.of(manifest))
        signing = observe.signing_key(runtime, token)
        present = observe.present_secret(runtime, token)
        decision = policy.plan(token, present, signing, runtime.now())
        if decision.replace:
            with contextlib.suppress(NotFound):
                await runtime.client.delete(SECRETS, namespace, render.secret_name(token))
        text = present.text if present is not None and decision.keep else None
        if decision.sign:
            text = sign(signing, username, render.lifetime(token), runtime.now())
        if text is not None:
            await _write(runtime, manifest, token, text)
        if decision.why:
            runtime.events.emit(
                manifest,
                "Normal",
                EventReason.SIGNED,
                "Sync",
                f"Signed another token: {decision.why}",
            )
        written = policy.PresentSecret(
            text,
            frozenset([render.secret_key(token)]),
            "Token",
            token.metadata.uid,
            not token.spec.refresh,
        )
        if text is not None:
            decision = policy.plan(token, written, signing, runtime.now())
        found, again, ready = decision.claims, decision.again, decision.condition
        if found is not None:
            times = {"issuedAt": timestamp(found.issued), "expiresAt": timestamp(found.expires)}
        if ready.status == "False":
            ready = workload.refused(
                runtime, manifest, NotUsableError(Ready[ready.reason.name], ready.message)
            )
    except (NotUsableError, ResourceError) as error:
        again, failure = None, error if isinstance(error, NotUsableError) else None
        ready = workload.refused(runtime, manifest, error)
    await runtime.status.report(TOKENS, manifest, [ready], times)
    workload.raise_retried(failure)
    return again


async def _write(runtime: Runtime, manifest: Manifest, token: Token, text: str) -> None:
    await workload.apply_all(runtime, manifest, "Token", lambda: [render.secret(token, text)])
