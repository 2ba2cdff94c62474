"""Tests of sidecars.operator.restapi."""
