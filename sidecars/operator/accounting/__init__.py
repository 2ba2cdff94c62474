"""Reconciles Accountings: slurmdbd."""
