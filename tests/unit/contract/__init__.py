"""Tests of sidecars.contract."""
