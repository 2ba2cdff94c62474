"""The role `bridge`."""
