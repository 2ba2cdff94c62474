"""Tests of the kind e2e."""
