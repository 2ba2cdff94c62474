"""The six custom resources as the Kubernetes API addresses them, and the finalizers that the
operator adds to them.
"""

from sidecars.kube import Resource
from sidecars.workloads.resources import GROUP, PLURALS, VERSION

CONTROLLERS = Resource(GROUP, VERSION, "Controller", PLURALS["Controller"])
RESTAPIS = Resource(GROUP, VERSION, "RestApi", PLURALS["RestApi"])
ACCOUNTINGS = Resource(GROUP, VERSION, "Accounting", PLURALS["Accounting"])
LOGINSETS = Resource(GROUP, VERSION, "LoginSet", PLURALS["LoginSet"])
NODESETS = Resource(GROUP, VERSION, "NodeSet", PLURALS["NodeSet"])
TOKENS = Resource(GROUP, VERSION, "Token", PLURALS["Token"])

IN_USE = "slinky.slurm.net/in-use"
"""Finalizer of a Controller and a RestApi, present while a NodeSet needs them to drain its nodes.
"""

WORKERS_TERMINATE_FIRST = "nodeset.slinky.slurm.net/workers"
"""Finalizer of a NodeSet, present until its worker pods are drained and deleted."""
