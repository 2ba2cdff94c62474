"""What a pass over one Token looks at."""

from sidecars.operator.runtime.errors import NotUsableError
from sidecars.operator.runtime.runtime import Runtime
from sidecars.policy import token as policy
from sidecars.policy.reasons import Ready
from sidecars.workloads import token as render
from sidecars.workloads.resources import Token


def signing_key(runtime: Runtime, token: Token) -> bytes:
    """Return the key that signs the token. Raises NotUsableError and ResourceError."""
    selector = render.jwt_key(token)
    secret = runtime.contents.secret(token.namespace, selector.name)
    if secret is None or not secret.data.get(selector.key):
        what = (
            "doesn't exist" if secret is None else f"has no key {selector.key!r}, or an empty one"
        )
        message = (
            f"spec.jwtKeyRef: Secret {selector.name!r} {what}; create it, and the operator "
            "continues"
        )
        raise NotUsableError(Ready.REFERENCE_MISSING, message)
    return secret.data[selector.key]


def present_secret(runtime: Runtime, token: Token) -> policy.PresentSecret | None:
    """Return the present Secret, or None if it doesn't exist. Raises NotUsableError."""
    secret = runtime.contents.secret(token.namespace, render.secret_name(token))
    if secret is None:
        return None
    value = secret.data.get(render.secret_key(token))
    owner = secret.metadata.controller
    return policy.PresentSecret(
        text=value.decode(errors="replace") if value is not None else None,
        keys=frozenset(secret.data),
        owner_kind=owner.kind if owner is not None else "",
        owner_uid=owner.uid if owner is not None else "",
        immutable=secret.immutable,
    )
