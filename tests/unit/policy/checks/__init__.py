"""Tests of `sidecars.policy.checks`."""
