"""What a check declares, and the stored result of its last run. Pure."""
