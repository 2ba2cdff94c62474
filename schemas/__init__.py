"""Single source of the custom resource definitions and of the charts' values schemas, and what is made of them."""
