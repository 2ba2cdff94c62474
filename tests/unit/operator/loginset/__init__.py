"""Tests of sidecars.operator.loginset."""
