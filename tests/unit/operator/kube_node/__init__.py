"""Tests of sidecars.operator.kube_node."""
