"""Tests of sidecars.policy.explain."""
