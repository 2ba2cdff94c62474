"""Tests of sidecars.reconfigure."""
