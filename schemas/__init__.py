"""The source of the custom resource definitions and of the charts' values schemas, and the generator."""
