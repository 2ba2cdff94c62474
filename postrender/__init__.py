"""`slurm-postrender`: a Helm post-renderer for clusters of charts/slurm. It reads the rendered
stream and writes it.

`stream` divides it into documents that stay byte for byte as they are unless a step changes them,
`configuration` reads the steps, `steps` has a module for each, `cli` is the command.
"""
