"""Tests of the package release."""
