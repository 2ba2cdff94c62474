"""Tests of sidecars.policy.autoscaling."""
