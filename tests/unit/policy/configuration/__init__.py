"""Tests of sidecars.policy.configuration."""
