"""Tests of the exporter with parts of Kubernetes."""
