"""The users and groups that a Controller declares, in its pods.

Pods mount the ConfigMap as a folder, so that a change reaches them without a restart.
libnss-extrausers, in the images, reads it; an image without this NSS module ignores it.
"""

import re
from collections.abc import Iterable
from typing import Any

from sidecars.contract import paths
from sidecars.workloads import names
from sidecars.workloads.resources import Controller

OVERLAY = "users"
"""The overlay of each base with the folder."""

GROUP_UPDATE_SECONDS = 30
"""GroupUpdateTime: how often slurmctld reads who belongs to the AllowGroups of a partition."""

_OWN_KEYS = re.compile(r"^[ \t]*AuthorizedKeysCommand[ \t=]", re.IGNORECASE | re.MULTILINE)


def overlays(controller: Controller | None) -> list[str]:
    """Return the overlay of pods of a Controller that declares users."""
    return [OVERLAY] if controller is not None and controller.spec.users_ref is not None else []


def variables(controller: Controller | None) -> dict[str, Any]:
    """Return the variables of the overlay."""
    return {"usersConfigMap": names.users(controller.name) if controller is not None else None}


def first_declaring(controllers: Iterable[Controller]) -> Controller | None:
    """Return the first by name that declares users, or None if none does."""
    return min((it for it in controllers if overlays(it)), key=lambda it: it.name, default=None)


def sshd_config(controller: Controller, extra: str) -> str:
    """Return lines that follow those of a custom resource (`extra`) in sshd_config: what sshd asks
    declared users for, and where it finds their keys. The latter is left out if `extra` sets
    AuthorizedKeysCommand, which it would override.

    The users are named in a file of their own, so that a change of them is none of sshd_config.
    sshd passes over a file that doesn't exist. A command gets the keys, because sshd refuses key
    files in a folder that others than root may write, as folders of a volume look to it.
    """
    if not overlays(controller):
        return ""
    keys = (
        f"AuthorizedKeysCommand /usr/bin/cat {paths.USERS}/keys-%u",
        "AuthorizedKeysCommandUser nobody",
    )
    lines = (
        "",
        "#",
        "### DECLARED USERS ###",
        "Match User *,!root",
        f"Include {paths.USERS_SSHD_CONF}",
        *(() if _OWN_KEYS.search(extra) else keys),
    )
    return "\n".join(lines)
