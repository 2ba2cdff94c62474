"""Tests of sidecars.simulate."""
