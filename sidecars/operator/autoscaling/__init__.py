"""Sets `spec.replicas` of the NodeSets with `spec.autoscaling` by what pending jobs request."""
