"""Publishes a release: images, charts, their software bills of materials, checksums and signatures.

`python -m release` has a command for each step of .github/workflows/release.yaml. `dry-run` runs
all of them against a registry on this host, except for those that need the identity of the
workflow.
"""
