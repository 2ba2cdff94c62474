"""Reconciles LoginSets: login nodes."""
