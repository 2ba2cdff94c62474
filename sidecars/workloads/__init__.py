"""From custom resources and facts to Kubernetes objects. Pure: no client, no clock, no event loop.

The structure of every pod is YAML (charts/slurm-operator/workloads), read once at start by
`structure`; the modules named after the kinds fill it in and lay the custom resource's own
overrides on top.
"""
