"""Tests of sidecars.explain."""
