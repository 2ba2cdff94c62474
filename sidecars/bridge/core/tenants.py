"""Which Slurm user, accounts, partitions and QOS a namespace has. Administrators write it, pods
choose among it.

A tenant is the JSON of one key of a ConfigMap, whose name is the namespace:

    {"user": "ada", "accounts": ["physics"], "partitions": ["gpu", "cpu"], "qos": ["normal"]}

The first of each list is what a pod gets that chooses none. Without `accounts` or `qos`, Slurm's
default of the user counts and pods choose none. `"maxPriority": 1000` lets pods set the priority of
their jobs, up to that number: an operator of Slurm sets it for them.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec

USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


class TenantError(ValueError):
    """The entry of a namespace can't be used. The text names the value and the remedy."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """What the pods of one namespace may use."""

    user: str
    partitions: tuple[str, ...]
    accounts: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    max_priority: int = 0
    """The highest priority that pods may set; 0: they may set none."""


MOST_PRIORITY = 2**31 - 1
"""Of an annotation, as SchedMD's slurm-bridge reads it. Slurm's own numbers reach further."""


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    user: str
    partitions: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    max_priority: Annotated[int, msgspec.Meta(ge=0, le=MOST_PRIORITY)] = msgspec.field(
        default=0, name="maxPriority"
    )


def parse(namespace: str, text: str, default_partition: str) -> Tenant:
    """Return the tenant of a namespace. Raises TenantError."""
    try:
        entry = msgspec.json.decode(text, type=_Entry)
    except msgspec.MsgspecError as error:
        example = '{"user": "ada", "partitions": ["slurm-bridge"]}'
        raise TenantError(f"tenant {namespace}: {error}; write JSON such as {example}") from None
    if entry.user == "root":
        raise TenantError(
            f"tenant {namespace}: user is root; name a Slurm user without rights of its own"
        )
    if not USER.fullmatch(entry.user):
        raise TenantError(
            f"tenant {namespace}: user {entry.user!r} is not a user name; name a user that "
            "slurmctld has"
        )
    for field, words in (
        ("partitions", entry.partitions),
        ("accounts", entry.accounts),
        ("qos", entry.qos),
    ):
        bad = next((word for word in words if not re.fullmatch(r"[A-Za-z0-9_.@+-]+", word)), None)
        if bad is not None:
            raise TenantError(
                f"tenant {namespace}: {field} has {bad!r}, which is not a name of Slurm's"
            )
    return Tenant(
        entry.user,
        entry.partitions or (default_partition,),
        entry.accounts,
        entry.qos,
        entry.max_priority,
    )


def parse_all(
    data: Mapping[str, str], default_partition: str
) -> tuple[dict[str, Tenant], dict[str, str]]:
    """Return the tenants by namespace, and what is wrong with the entries of the other
    namespaces.
    """
    tenants: dict[str, Tenant] = {}
    problems: dict[str, str] = {}
    for namespace, text in data.items():
        try:
            tenants[namespace] = parse(namespace, text, default_partition)
        except TenantError as error:
            problems[namespace] = str(error)
    return tenants, problems


def root_problems(users: Iterable[str]) -> dict[str, str]:
    """Return why these Slurm users, who turned out to have uid 0, get no job, by user."""
    remedy = "an administrator maps this namespace to another user"
    return {user: f"Slurm user {user} has uid 0: {remedy}" for user in users}
