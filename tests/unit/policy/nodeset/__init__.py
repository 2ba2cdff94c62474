"""Tests of sidecars.policy.nodeset."""
