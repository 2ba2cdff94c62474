"""The answer for a pod: its trouble, and if the Slurm Bridge schedules it, that of its job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecars.explain.core import bridge_pod, objects, pod_trouble
from sidecars.explain.core.records import Answer, ranked

if TYPE_CHECKING:
    from sidecars.explain.core.records import Moment, Object, Seen


def explain(seen: Seen, name: str) -> Answer:
    """Return the answer for the pod of this name."""
    about = f"pod {seen.namespace}/{name}"
    if seen.kube.pods is None:
        return Answer(
            about, "unknown: Kubernetes' pods could not be read", missing=seen.missing, known=False
        )
    pod = objects.named(seen.kube.pods, name)
    if pod is None:
        return Answer(about, "does not exist", missing=seen.missing, known=False)
    findings = pod_trouble.trouble(pod, seen)
    happened: tuple[Moment, ...] = ()
    words = pod_trouble.state(pod)
    if bridge_pod.is_bridged(pod):
        # Only what has a Kubernetes node, or is being deleted, can have other troubles than those
        # of its job.
        of_job = (
            bridge_pod.ending(pod, seen, about)
            if objects.terminating(pod)
            else bridge_pod.findings(pod, seen)
        )
        findings = of_job + (findings if _placed(pod) else [])
        happened = bridge_pod.timeline(seen)
        words = ", ".join(filter(None, (words, bridge_pod.state(pod, seen))))
    events = objects.events_of(seen.kube.events, "Pod", name)
    timeline = sorted((*objects.moments(events, about), *happened), key=lambda it: it.at)
    return Answer(about, words, ranked(findings), timeline=tuple(timeline), missing=seen.missing)


def _placed(pod: Object) -> bool:
    return bool(objects.text(pod, "spec", "nodeName")) or objects.terminating(pod)
