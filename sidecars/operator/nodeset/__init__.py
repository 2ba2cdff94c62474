"""Reconciles NodeSets: pools of slurmd pods."""
