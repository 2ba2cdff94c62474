"""Custom resources → Kubernetes objects."""
