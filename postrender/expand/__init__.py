"""Custom resources → Kubernetes objects, by the code of the operator.

`cluster` collects what a stream contains, `objects` renders what the operator would apply,
`standalone` changes what an installation without an operator needs otherwise, and `secrets` adds
the Job that generates its keys.
"""
