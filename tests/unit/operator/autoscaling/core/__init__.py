"""Tests of sidecars.operator.autoscaling.core."""
