"""Tests of sidecars.doctor."""
