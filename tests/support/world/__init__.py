"""A Kubernetes cluster with Slurm in it as a model in this process, in virtual time and repeatable
by its seed.

The operator runs on it unchanged: `api` replaces the API server, `kubelets` and `worker` the rest
of a Kubernetes cluster, `sidecars.simulate` Slurm. `watchdog` checks the invariants at every
request of the operator. `scripts` are the actions of users and administrators and the faults, as
data.
"""
