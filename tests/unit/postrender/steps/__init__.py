"""The steps of the post-renderer."""
