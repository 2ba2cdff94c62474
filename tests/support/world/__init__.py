"""A Kubernetes cluster with Slurm in it as a model in this process, in virtual time and repeatable by its seed.

The operator runs on it unchanged: `api` stands in for the API server, `kubelets` for everything else in a Kubernetes
cluster, `sidecars.simulate` for Slurm. `watchdog` looks at every request that leaves the operator and says when one of
the invariants is broken. `scripts` are what users, machines and faults do, as data.
"""
