"""Slurm as this product sees it: REST protocol, carriers and poller, node states, hostlists, slurm.conf, tokens.

`client` (aiohttp, msgspec) and `poller` (asyncio) are for the operator and the exporter. Every other module is standard
library only, so that the sidecars of a worker pod may import it; this file therefore imports nothing. Nothing here
knows Kubernetes.
"""
