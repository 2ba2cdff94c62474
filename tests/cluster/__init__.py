"""The local cluster: a real Kubernetes cluster of three nodes on one machine, for developers, CI and newcomers."""
