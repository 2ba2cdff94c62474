"""What an upgrade would do to objects, pods, Slurm nodes and jobs.

`differences` compares objects, `workers` asks the operator's policy about NodeSets, `report`
collects both and writes them, `state` is what is known of the cluster, and `live` reads it by
kubectl.
"""
