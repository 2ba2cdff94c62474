"""Tests of sidecars.operator.token."""
