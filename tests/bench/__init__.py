"""Benchmarks: `python -m tests.bench [NAME]`, one module each; every figure stands beside a ceiling
or a peer.

They find out what things cost on this machine, now. They are no tests: a target that is missed is
printed, not failed.
"""
