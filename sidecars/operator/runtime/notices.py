"""Reads what node autoscalers report about worker pods that wait for a Kubernetes node, where the
operator may.
"""

import logging
from dataclasses import dataclass, field

from sidecars import objects
from sidecars.kube import EVENTS, Client
from sidecars.kube.errors import Forbidden, KubeError
from sidecars.policy import node_autoscalers
from sidecars.policy.node_autoscalers import Notice

log = logging.getLogger(__name__)

FORBIDDEN_FOR = 600.0
"""Seconds for which a namespace whose Events may not be read isn't asked again."""


@dataclass(slots=True)
class Notices:
    """The last answers of node autoscalers, by namespace and the pod's uid. Times are those of one
    clock.
    """

    _by_namespace: dict[str, dict[str, Notice]] = field(default_factory=dict)
    _again: dict[str, float] = field(default_factory=dict)
    """When a namespace is read again at the earliest."""

    def about(self, pod: objects.Pod) -> Notice | None:
        """Return the last answer about the pod, None without one."""
        return self._by_namespace.get(pod.metadata.namespace, {}).get(pod.metadata.uid)

    async def refresh(self, client: Client, namespace: str, now: float) -> None:
        """Read the Events of the namespace, unless they were read lately. What can't be read stays
        as it was.
        """
        if now < self._again.get(namespace, now):
            return
        self._again[namespace] = now + node_autoscalers.ASK_SECONDS
        events = []
        try:
            for reason in node_autoscalers.REASONS:
                listed, _ = await client.list(EVENTS, namespace, field_selector=f"reason={reason}")
                events += listed
        except Forbidden as error:
            log.info("the Events of namespace %s are not read: %s", namespace, error)
            self._again[namespace] = now + FORBIDDEN_FOR
        except KubeError as error:
            log.debug("the Events of namespace %s: %s", namespace, error)
            return
        self._by_namespace[namespace] = node_autoscalers.read(events)


def is_unscheduled(pod: objects.Pod) -> bool:
    """Return whether Kubernetes has no node for the pod."""
    scheduled = pod.status.condition("PodScheduled")
    return scheduled is not None and scheduled.status == "False"
