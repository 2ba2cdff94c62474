"""Everything of this product that runs in the cluster; one image, one entry point: `slurm-sidecars
ROLE`.
"""
