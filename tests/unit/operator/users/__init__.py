"""Tests of sidecars.operator.users."""
