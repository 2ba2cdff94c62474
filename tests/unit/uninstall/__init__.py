"""Tests of sidecars.uninstall."""
