"""Tests of sidecars.operator.accounting."""
