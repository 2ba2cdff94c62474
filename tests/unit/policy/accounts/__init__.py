"""Tests of sidecars.policy.accounts."""
