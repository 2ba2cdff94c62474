"""Tests of sidecars.explain.core."""
