"""What the values declare for slurmdbd, and the changes that bring slurmdbd to it. Pure."""
