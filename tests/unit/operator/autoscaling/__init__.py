"""Tests of sidecars.operator.nodeset."""
