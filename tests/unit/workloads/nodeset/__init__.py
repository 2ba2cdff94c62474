"""Worker pods and what belongs to them."""
