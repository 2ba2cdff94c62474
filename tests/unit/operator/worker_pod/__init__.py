"""Tests of sidecars.operator.worker_pod."""
