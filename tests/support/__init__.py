"""What several test suites and the benchmarks share; it contains no tests.

`world`: a Kubernetes cluster with Slurm as a model in one process, in virtual time. `kube_double`:
an HTTP server that speaks for a kube-apiserver. `apiserver`: a real kube-apiserver with the
operator in this process. `real`: real Slurm on real Kubernetes, through kubectl and Helm.
`builders`: custom resources and facts as values.
"""
