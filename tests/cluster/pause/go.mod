module slurm-charts/tests/cluster/pause

go 1.24
