"""Tests of sidecars.node."""
