"""What the reconcilers of all kinds share. Knows of no kind's folder."""
