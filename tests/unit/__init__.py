"""Tests of the kind unit."""
