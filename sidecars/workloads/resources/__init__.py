"""The six custom resources as typed records, spelled as in their CRDs (slinky.slurm.net/v1beta1).

`specs` is generated from the CRDs' source, with the same defaults: a manifest that never passed an
apiserver reads the same. Pod templates, container overrides and the specs of Services are plain
JSON values: Kubernetes owns their schema. Validates types only; the rules between fields are in the
CRDs.
"""

from sidecars.objects import Manifest
from sidecars.workloads.resources.accounting import Accounting
from sidecars.workloads.resources.common import (
    API_VERSION,
    GROUP,
    VERSION,
    Json,
    Resource,
    ResourceError,
)
from sidecars.workloads.resources.controller import Controller
from sidecars.workloads.resources.durations import duration
from sidecars.workloads.resources.loginset import LoginSet
from sidecars.workloads.resources.nodeset import NodeSet
from sidecars.workloads.resources.reading import PLURALS, builtins, read
from sidecars.workloads.resources.restapi import RestApi
from sidecars.workloads.resources.specs import (
    Block,
    DatabaseTLS,
    KeySelector,
    LocalObjectReference,
    MetricsEndpoint,
    NodeSetSpec,
    PodTemplate,
    Service,
    StorageConfig,
    Topology,
    Tree,
)
from sidecars.workloads.resources.token import Token

__all__ = [
    "API_VERSION",
    "GROUP",
    "PLURALS",
    "VERSION",
    "Accounting",
    "Block",
    "Controller",
    "DatabaseTLS",
    "Json",
    "KeySelector",
    "LocalObjectReference",
    "LoginSet",
    "Manifest",
    "MetricsEndpoint",
    "NodeSet",
    "NodeSetSpec",
    "PodTemplate",
    "Resource",
    "ResourceError",
    "RestApi",
    "Service",
    "StorageConfig",
    "Token",
    "Topology",
    "Tree",
    "builtins",
    "duration",
    "read",
]
