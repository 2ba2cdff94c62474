"""The role `secrets`: generates the keys, passwords and tokens of a namespace whose cluster has no
operator.

It runs once per installation, and every few minutes where tokens are renewed. What exists is never
changed, except for slurmdbd.conf and for tokens that are about to expire.
"""

import asyncio
import base64
import json
import logging
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sidecars import generated
from sidecars.commandline import Parser
from sidecars.kube import (
    SECRETS,
    STATEFUL_SETS,
    AlreadyExists,
    Client,
    CredentialsError,
    KubeError,
    Manifest,
    NotFound,
    load_credentials,
)
from sidecars.policy import token as policy
from sidecars.program import log_to_stderr
from sidecars.slurm.tokens import sign
from sidecars.workloads import accounting as slurmdbd
from sidecars.workloads import controller as slurmctld
from sidecars.workloads import loginset as login
from sidecars.workloads import names, structure
from sidecars.workloads import token as render
from sidecars.workloads.assembly import find, ownerless
from sidecars.workloads.facts import Facts, Site, UnreadObjects
from sidecars.workloads.resources import (
    Accounting,
    Controller,
    KeySelector,
    LoginSet,
    ResourceError,
    Token,
    read,
)

log = logging.getLogger(__name__)

RENEWED_BEFORE_SECONDS = 330.0
"""A token that would be renewed within this time is renewed now: the next run is 300 s away, and
may start late.
"""


class SecretError(RuntimeError):
    """A Secret that can't be generated, and the remedy."""


def main(arguments: Sequence[str]) -> int:
    """Generate what the custom resources in the file ask for; 0 if all of it exists now, 1 if not,
    2 for usage.
    """
    parser = Parser(
        prog="slurm-sidecars secrets",
        description="Generate the Secrets that custom resources ask for, without an operator.",
    )
    parser.add_argument("file", type=Path, help="the custom resources, a JSON list")
    given = parser.parse_args(arguments)
    log_to_stderr()

    async def run(resources: Sequence[Manifest]) -> None:
        async with Client.connect(load_credentials()) as client:
            await generate(client, resources, time.time())

    try:
        asyncio.run(run(json.loads(given.file.read_text())))
    except (
        KubeError,
        CredentialsError,
        ResourceError,
        SecretError,
        generated.GenerationError,
        structure.StructureError,
        OSError,
        ValueError,
    ) as error:
        log.error("%s", error)
        return 1
    return 0


async def generate(client: Client, manifests: Sequence[Manifest], now: float) -> None:
    """Generate the Secrets of these custom resources, keys first. `now` is seconds since the epoch.

    Raises SecretError, GenerationError, ResourceError and KubeError.
    """
    controllers = [read(Controller, it) for it in manifests if it["kind"] == "Controller"]
    accountings = [read(Accounting, it) for it in manifests if it["kind"] == "Accounting"]
    for controller in controllers:
        if not controller.spec.external:
            user = names.controller(controller.name)
            for selector in (slurmctld.slurm_key(controller), slurmctld.jwt_key(controller)):
                await _fill(
                    client,
                    controller.namespace,
                    selector,
                    generated.KEY_CHARACTERS,
                    user,
                    immutable=True,
                )
    for accounting in accountings:
        if not accounting.spec.external:
            await _slurmdbd_conf(client, accounting)
    for manifest in manifests:
        if manifest["kind"] == "LoginSet":
            await _host_keys(client, read(LoginSet, manifest))
        elif manifest["kind"] == "Token":
            await _token(client, read(Token, manifest), now)


async def _fill(
    client: Client,
    namespace: str,
    selector: KeySelector,
    characters: int,
    used_by: str,
    *,
    immutable: bool,
) -> None:
    """Fill a Secret that asks for it. `used_by`: the StatefulSet that has the value."""
    secret = await _needed(client, namespace, selector.name)
    if _value(secret, selector.key):
        return
    if (secret["metadata"].get("annotations") or {}).get(names.GENERATE) != selector.key:
        raise SecretError(f"Secret {selector.name!r} has no key {selector.key!r}: add it")
    try:
        live = await client.get(STATEFUL_SETS, namespace, used_by)
    except NotFound:
        live = {}
    if _had_value(secret, selector.key, live):
        raise SecretError(
            f"Secret {selector.name!r} has lost {selector.key!r}, which the cluster uses. Restore "
            "the Secret from a backup: none is generated, because the daemons have the former "
            f"one. If {used_by} has never run, delete the release and install it again"
        )
    text = base64.b64encode(generated.text(characters).encode()).decode()
    patch = {
        # Only into the very Secret that had no value.
        "metadata": {
            "resourceVersion": secret["metadata"]["resourceVersion"],
            "annotations": {names.GENERATED: selector.key},
        },
        "data": {selector.key: text},
        **({"immutable": True} if immutable else {}),
    }
    await client.merge_patch(SECRETS, namespace, selector.name, patch)
    log.info("generated %r in Secret %s/%s", selector.key, namespace, selector.name)


def _had_value(secret: Manifest, key: str, user: Manifest) -> bool:
    """Return whether daemons may have a former value, although they may not be ready now. `user`:
    {} if it doesn't exist.

    An installation creates the Secret before the StatefulSet: a newer one replaces another.
    """
    was_generated = (secret["metadata"].get("annotations") or {}).get(names.GENERATED) == key
    created, used = (it.get("metadata", {}).get("creationTimestamp") or "" for it in (secret, user))
    is_newer = bool(user) and created > used
    return was_generated or is_newer or bool((user.get("status") or {}).get("readyReplicas"))


async def _slurmdbd_conf(client: Client, accounting: Accounting) -> None:
    """Create the Secret with slurmdbd.conf, which contains the password."""
    selector, namespace = slurmdbd.storage_of(accounting).password_key_ref, accounting.namespace
    used_by = names.accounting(accounting.name)
    await _fill(
        client, namespace, selector, generated.PASSWORD_CHARACTERS, used_by, immutable=False
    )
    password = _value(await _needed(client, namespace, selector.name), selector.key)
    # The key only salts a hash in the StatefulSet.
    secrets = slurmdbd.Secrets(password=password, slurm_key=b"salt")
    site = Site(
        workloads=structure.load(structure.folder(None)),
        sidecars_image="",
        ipv6=":" in os.environ.get("POD_IP", ""),
    )
    facts = Facts(site=site, secrets=UnreadObjects(), config_maps=UnreadObjects())
    await _put(client, find(slurmdbd.objects(accounting, facts, secrets), "Secret"))


async def _host_keys(client: Client, loginset: LoginSet) -> None:
    try:
        await client.get(SECRETS, loginset.namespace, names.ssh_host_keys(loginset.name))
    except NotFound:
        await _put(
            client,
            login.host_keys_secret(loginset, await generated.host_keys(login.HOST_KEY_TYPES)),
        )


async def _token(client: Client, token: Token, now: float) -> None:
    username = render.username(token)
    selector, namespace = render.jwt_key(token), token.namespace
    key = _value(await _needed(client, namespace, selector.name), selector.key)
    if not key:
        raise SecretError(f"Secret {selector.name!r} has no key {selector.key!r}: add it")
    try:
        live = await client.get(SECRETS, namespace, render.secret_name(token))
    except NotFound:
        live = None
    present = None
    if live is not None:
        data = live.get("data") or {}
        value = _value(live, render.secret_key(token))
        present = policy.PresentSecret(
            value.decode(errors="replace") if value else None,
            frozenset(data),
            immutable=bool(live.get("immutable")),
        )
    decision = policy.plan(
        token, present, key, now + (RENEWED_BEFORE_SECONDS if token.spec.refresh else 0)
    )
    if decision.replace:
        raise SecretError(
            f"Secret {render.secret_name(token)!r} can't be changed: delete it to get another token"
        )
    if decision.sign:
        await _put(client, render.secret(token, sign(key, username, render.lifetime(token), now)))


async def _needed(client: Client, namespace: str, name: str) -> Manifest:
    try:
        return await client.get(SECRETS, namespace, name)
    except NotFound as error:
        raise SecretError(f"Secret {namespace}/{name} doesn't exist: create it") from error


async def _put(client: Client, manifest: Manifest) -> None:
    """Create the Secret, or give it this data."""
    wanted = ownerless(manifest)
    metadata = wanted["metadata"]
    try:
        await client.create(SECRETS, wanted)
        log.info("created Secret %s/%s", metadata["namespace"], metadata["name"])
    except AlreadyExists:
        live = await client.get(SECRETS, metadata["namespace"], metadata["name"])
        if live.get("data") != wanted["data"]:
            await client.merge_patch(
                SECRETS, metadata["namespace"], metadata["name"], {"data": wanted["data"]}
            )
            log.info("changed Secret %s/%s", metadata["namespace"], metadata["name"])


def _value(secret: Mapping[str, Any], key: str) -> bytes:
    return base64.b64decode((secret.get("data") or {}).get(key) or "")
