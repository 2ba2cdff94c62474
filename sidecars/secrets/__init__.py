"""Generates the Secrets of clusters that are installed without an operator."""
