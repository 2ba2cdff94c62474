"""The local cluster: what of it is pure."""
