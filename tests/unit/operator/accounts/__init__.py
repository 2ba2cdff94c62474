"""Tests of sidecars.operator.accounts."""
