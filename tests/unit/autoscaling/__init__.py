"""Tests of sidecars.autoscaling."""
