"""The page docs/reference/conditions.md: all words by which this product reports what it does and
what is wrong.
"""

import inspect
from collections.abc import Iterable

from schemas import markdown
from sidecars.contract.explained import Explained
from sidecars.contract.reasons import NodeReason
from sidecars.operator.metrics import Metric
from sidecars.policy.reasons import (
    CONDITION_TYPES,
    EventReason,
    Mark,
    NotCounted,
    Reason,
    SlurmNodeState,
)
from sidecars.policy.reasons.bridge import BridgeEvent, PodDisrupted, PodQueued

SOURCE = "sidecars/policy/reasons, sidecars/contract/reasons.py and sidecars/operator/metrics.py"

_HEAD = """\
This page lists everything by which the operator and the worker pods report their state: reasons
of conditions, Events, reasons of Slurm nodes, conditions of pods, labels and annotations, and
metrics. Search it for the word that you see.
[Troubleshooting](../troubleshooting.md) begins with symptoms instead.

`kubectl get` shows the reason of the condition `Ready`. `kubectl describe` shows all conditions
with their messages.
A message names the object, the value and the next step."""

_NODE_REASONS = """\
`sinfo -R` shows them. Words in capitals stand for other texts. Any other reason is an
administrator's, another program's or Slurm's own: the operator and the worker pods never change
it."""


_OTHERS = """\
These messages are whole sentences with place, value and remedy, so this page doesn't repeat them:

- Helm's, when it refuses values
  ([Helm refuses the values](../troubleshooting.md#helm-refuses-the-values)).
- Those of the container `register` of a worker pod, which doesn't start slurmd with a value that
  Slurm can't read: `kubectl logs POD -c register`.
- Findings of `slurm-sidecars doctor gres`, each with its fix
  ([GPUs](../gpus.md#diagnose-gresnull)).
- Findings about slurm.conf and other files, in the message of `ConfigurationAccepted`
  ([Checks](../configuration.md#checks-before-a-change-is-applied))."""


def page() -> str:
    """Return the page."""
    return markdown.page(
        SOURCE,
        [
            "# Conditions, events and reasons",
            _HEAD,
            _contents(),
            *(part for kind in CONDITION_TYPES for part in _condition_type(kind)),
            *_events(),
            "## Reasons of Slurm nodes",
            _NODE_REASONS,
            markdown.explained("reason", NodeReason),
            "## Pod conditions",
            _lines(SlurmNodeState),
            markdown.explained("type", SlurmNodeState, "SlurmNodeState"),
            "## Pods of the Slurm Bridge",
            _lines(PodQueued),
            markdown.explained("reason", PodQueued),
            _lines(PodDisrupted),
            markdown.explained("reason", PodDisrupted),
            _lines(BridgeEvent),
            markdown.explained("event", BridgeEvent),
            "## Jobs that autoscaling does not count",
            _lines(NotCounted),
            markdown.explained("reason", NotCounted),
            "## Labels and annotations",
            markdown.explained("name", Mark),
            "## Metrics of the operator",
            markdown.explained("metric", Metric),
            "## Messages with a remedy of their own",
            _OTHERS,
        ],
    )


def _contents() -> str:
    names = [
        *(kind.__name__ for kind in CONDITION_TYPES),
        "Events",
        "Reasons of Slurm nodes",
        "Pod conditions",
    ]
    names += ["Pods of the Slurm Bridge", "Jobs that autoscaling does not count"]
    names += [
        "Labels and annotations",
        "Metrics of the operator",
        "Messages with a remedy of their own",
    ]
    return "\n".join(f"- [{name}](#{name.lower().replace(' ', '-')})" for name in names)


def _condition_type(kind: type[Reason]) -> Iterable[str]:
    yield f"## {kind.__name__}"
    yield _lines(kind)
    for reason in kind:
        yield f"### {kind.__name__}: {reason.value}"
        yield f"Status {reason.statuses}. {reason.cause}"
        yield f"Remedy: {reason.remedy}"


def _events() -> Iterable[str]:
    yield "## Events"
    yield _lines(EventReason)
    for reason in EventReason:
        yield f"### Event: {reason.value}"
        yield reason.cause
        yield f"Remedy: {reason.remedy}"


def _lines(kind: type[Explained]) -> str:
    return inspect.cleandoc(kind.__doc__ or "")
