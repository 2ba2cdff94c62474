"""Tests of tests.support.world: that the model is like a cluster, and that its watchdog barks."""
