"""Tests of sidecars.policy."""
