"""Namespaces in which the bridge may not change pods, because they have no RoleBinding.

It can write no condition there. So its log, and Events of the ConfigMap of the tenants, have the command.
"""

import logging
import re
from collections.abc import Callable

from sidecars.kube import CONFIG_MAPS, ApiError, EventRecorder, Forbidden
from sidecars.policy.reasons.bridge import BridgeEvent

log = logging.getLogger(__name__)

AGAIN_SECONDS = 300.0
"""Seconds after which a namespace is reported again."""

_BY_RBAC = re.compile(r"cannot \w+ resource ")
"""In the words of the API server: admission, such as a quota, refuses with the same status."""


class Rights:
    """`namespace` and `tenants` name the ConfigMap; `now` gives monotonic seconds."""

    def __init__(
        self,
        events: EventRecorder,
        namespace: str,
        tenants: str,
        role: str,
        account: str,
        now: Callable[[], float],
    ) -> None:
        self._events = events
        self._namespace = namespace
        self._tenants = tenants
        self._role = role
        self._account = account
        self._now = now
        self._reported: dict[str, float] = {}

    def explained(self, namespace: str, error: ApiError) -> str:
        """Why the API server refuses a change of a pod of this namespace. Reports a missing RoleBinding."""
        if not isinstance(error, Forbidden) or not _BY_RBAC.search(error.message):
            return error.message
        text = (
            f"the Slurm Bridge may not change the pods of namespace {namespace}: "
            f"kubectl create rolebinding {self._role} --namespace {namespace} --clusterrole={self._role} "
            f"--serviceaccount={self._namespace}:{self._account}"
        )
        at, now = self._reported.get(namespace), self._now()
        if at is None or now - at >= AGAIN_SECONDS:
            self._reported[namespace] = now
            log.warning("%s", text)
            metadata = {"namespace": self._namespace, "name": self._tenants}
            regarding = {"apiVersion": CONFIG_MAPS.api_version, "kind": CONFIG_MAPS.kind, "metadata": metadata}
            self._events.emit(regarding, "Warning", BridgeEvent.NO_ROLE_BINDING, "Schedule", text)
        return text
