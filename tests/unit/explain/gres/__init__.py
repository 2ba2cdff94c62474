"""Tests of sidecars.explain.gres."""
