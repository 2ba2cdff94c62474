"""Whether slurmctld runs with the configuration that the custom resources describe, and which line
stops it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecars.explain.core import objects, resources
from sidecars.explain.core.records import Answer, Finding, Level, ranked

if TYPE_CHECKING:
    from sidecars.explain.core.records import Object, Seen

_TYPES = ("ConfigurationAccepted", "ConfigurationRunning", "StartGated", "SlurmReachable")


def explain(seen: Seen, name: str) -> Answer:
    """Explain the Controller of this name, or the only one for ""."""
    about = f"configuration of Controller {seen.namespace}/{name}".rstrip("/")
    if seen.kube.controllers is None:
        return Answer(
            about, "unknown: the Controllers could not be read", missing=seen.missing, known=False
        )
    found = (
        objects.named(seen.kube.controllers, name)
        if name
        else next(iter(seen.kube.controllers), None)
    )
    if found is None:
        return Answer(
            about, "no such Controller exists in this namespace", missing=seen.missing, known=False
        )
    about = f"configuration of Controller {seen.namespace}/{objects.name(found)}"
    findings = [*resources.trouble(found), *_unknown(found, about)]
    events = [
        it
        for it in objects.events_of(seen.kube.events, "Controller", objects.name(found))
        if objects.text(it, "reason").startswith(("Configuration", "Restarting", "SyncFailed"))
    ]
    uid = objects.text(found, "metadata", "uid")
    timeline = objects.moments(objects.recent(events, uid), "Controller")
    return Answer(
        about,
        _state(found),
        ranked(findings),
        timeline=tuple(sorted(timeline, key=lambda it: it.at)),
        missing=seen.missing,
    )


def _state(controller: Object) -> str:
    words = []
    for kind in _TYPES[:2]:
        found = objects.condition(controller, kind)
        words.append(
            f"{kind} is {found.status} ({found.reason})"
            if found is not None
            else f"{kind} is not reported"
        )
    return ", ".join(words)


def _unknown(controller: Object, about: str) -> list[Finding]:
    """Find what is still being checked."""
    found = []
    for kind in _TYPES[:2]:
        condition = objects.condition(controller, kind)
        if condition is not None and condition.status == "Unknown":
            text = condition.message or f"{kind} is not known yet."
            found.append(
                Finding(
                    condition.reason or kind,
                    Level.WAITS,
                    about,
                    text,
                    event="the sidecar reconfigure reports",
                )
            )
    return found
