"""Backups with a real store."""
