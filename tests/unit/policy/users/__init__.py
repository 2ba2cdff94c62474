"""Tests of sidecars.policy.users."""
