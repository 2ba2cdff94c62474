"""What an upgrade would do."""
