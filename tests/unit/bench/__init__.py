"""Tests of the benchmarks' runner; benchmarks themselves are no tests."""
