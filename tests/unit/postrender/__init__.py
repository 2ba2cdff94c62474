"""The post-renderer."""
