"""Tests of the wrapper for container images in jobs."""
