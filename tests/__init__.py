"""Tests, and the local cluster that they and `make up` run on."""
