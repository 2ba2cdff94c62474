"""The decisions of the role `bridge`."""
