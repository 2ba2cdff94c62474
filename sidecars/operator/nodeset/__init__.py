"""Reconciles NodeSets: sets of slurmd pods."""
