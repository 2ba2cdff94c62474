"""Tests of sidecars.operator.runtime."""
