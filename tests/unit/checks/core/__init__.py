"""Tests of sidecars.checks.core."""
