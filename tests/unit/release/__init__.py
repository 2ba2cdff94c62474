"""Tests of sidecars.release."""
