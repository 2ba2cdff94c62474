"""Tests of sidecars.operator.accounts.core."""
