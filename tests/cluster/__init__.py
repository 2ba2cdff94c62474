"""The local cluster: a real Kubernetes cluster of three nodes on one host, for developers, CI
and newcomers.
"""
