"""Tests of sidecars.operator.controller."""
