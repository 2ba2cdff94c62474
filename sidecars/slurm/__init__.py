"""Slurm as this product uses it: REST protocol, clients and poller, node states, hostlists,
slurm.conf, tokens.

`client` and `streaming` (aiohttp, msgspec) and `poller` with its parts (asyncio: `node_cache`,
`schedule`, `writer`, `on_demand`, `pending`) are for the operator and the exporter. Every other
module uses the standard library only, so that the sidecars of a worker pod can import it; this file
therefore imports nothing. Nothing here uses Kubernetes.
"""
