"""Tests of sidecars.register."""
