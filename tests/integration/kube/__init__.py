"""Tests of the Kubernetes layer."""
