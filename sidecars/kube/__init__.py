"""A thin Kubernetes client layer on aiohttp and msgspec: requests, caches that stay right, work
queue, leader election.

Knows nothing of Slurm. The names below are its surface; records of built-in objects are in
`sidecars.objects`.
"""

from sidecars.kube.client import Client
from sidecars.kube.credentials import Access, Credentials
from sidecars.kube.election import (
    Election,
    Periods,
    Time,
    boottime,
    candidate,
    run_until_lost,
    status_of,
)
from sidecars.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    CredentialsError,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    LeadershipLost,
    Malformed,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from sidecars.kube.events import EventRecorder
from sidecars.kube.expectations import Expectations
from sidecars.kube.kubeconfig import load_credentials
from sidecars.kube.queue import WorkQueue, run_workers
from sidecars.kube.reflector import Reflector
from sidecars.kube.resources import (
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    SECRETS,
    SERVICE_MONITORS,
    SERVICES,
    STATEFUL_SETS,
    Resource,
)
from sidecars.kube.responses import WatchEvent
from sidecars.kube.store import Event, Key, Store, identity
from sidecars.objects import Manifest

__all__ = [
    "CONFIG_MAPS",
    "CONTROLLER_REVISIONS",
    "DEPLOYMENTS",
    "ENDPOINT_SLICES",
    "EVENTS",
    "LEASES",
    "NAMESPACES",
    "NODES",
    "PERSISTENT_VOLUME_CLAIMS",
    "PODS",
    "POD_DISRUPTION_BUDGETS",
    "SECRETS",
    "SERVICES",
    "SERVICE_MONITORS",
    "STATEFUL_SETS",
    "Access",
    "AlreadyExists",
    "ApiError",
    "Client",
    "Conflict",
    "Credentials",
    "CredentialsError",
    "Election",
    "Event",
    "EventRecorder",
    "Expectations",
    "Forbidden",
    "Gone",
    "Invalid",
    "Key",
    "KubeError",
    "LeadershipLost",
    "Malformed",
    "Manifest",
    "NotFound",
    "Periods",
    "Reflector",
    "Resource",
    "ServerError",
    "Store",
    "Time",
    "TooManyRequests",
    "Unauthorized",
    "Unreachable",
    "WatchEvent",
    "WorkQueue",
    "boottime",
    "candidate",
    "identity",
    "load_credentials",
    "run_until_lost",
    "run_workers",
    "status_of",
]
