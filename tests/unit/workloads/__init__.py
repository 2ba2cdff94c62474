"""Tests of sidecars.workloads."""
