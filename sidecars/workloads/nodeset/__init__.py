"""Worker pods, their claims, and what the NodeSets of one Controller share."""

from sidecars.workloads.nodeset.claims import claims, daemon_claims
from sidecars.workloads.nodeset.cloud_records import (
    cloud_record,
    is_current,
    offered,
    registered,
    shown,
    would_suffice,
)
from sidecars.workloads.nodeset.naming import (
    daemon_pod_name,
    hostname,
    ordinal_of,
    pod_name,
    selector,
)
from sidecars.workloads.nodeset.objects import objects, shared_objects
from sidecars.workloads.nodeset.pods import daemon_pod, pod
from sidecars.workloads.nodeset.revisions import (
    CHOICES,
    Revision,
    revision,
    revision_object,
    revision_of,
)
from sidecars.workloads.nodeset.template import pod_template

__all__ = [
    "CHOICES",
    "Revision",
    "claims",
    "cloud_record",
    "daemon_claims",
    "daemon_pod",
    "daemon_pod_name",
    "hostname",
    "is_current",
    "objects",
    "offered",
    "ordinal_of",
    "pod",
    "pod_name",
    "pod_template",
    "registered",
    "revision",
    "revision_object",
    "revision_of",
    "selector",
    "shared_objects",
    "shown",
    "would_suffice",
]
