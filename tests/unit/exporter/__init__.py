"""Tests of sidecars.exporter."""
