"""Tests of sidecars.operator."""
