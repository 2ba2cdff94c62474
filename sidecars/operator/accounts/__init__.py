"""Applies declared accounts, users and QOS to slurmdbd."""
