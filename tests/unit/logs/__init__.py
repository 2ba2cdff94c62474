"""Tests of sidecars.logs."""
