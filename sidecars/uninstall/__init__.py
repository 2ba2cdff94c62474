"""The role `release`: run once before the operator's chart is uninstalled."""
