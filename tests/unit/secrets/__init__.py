"""The role `secrets`."""
