#!/bin/sh
# nvidia-smi lists as many GPUs as Slurm allocates, and dcgmi's quick diagnosis passes where dcgmi is installed.
command -v nvidia-smi >/dev/null || { echo "nvidia-smi is not installed on the node"; exit 77; }
list=$(nvidia-smi -L 2>&1) || { echo "nvidia-smi: $(echo "$list" | head -n 1)"; exit 1; }
found=$(echo "$list" | grep -c '^GPU ')
wanted=${SLURM_GPUS_ON_NODE:-1}
[ "$found" -ge "$wanted" ] || { echo "$found of $wanted GPUs answer"; exit 1; }
if command -v dcgmi >/dev/null; then
  report=$(dcgmi diag -r 1 2>&1) || { echo "dcgmi diag: $(echo "$report" | grep -m 1 -i 'fail\|error')"; exit 1; }
fi
echo "$found GPUs answer"
