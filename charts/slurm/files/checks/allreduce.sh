#!/bin/sh
# Runs the all_reduce of CHECK_COMMAND (default: all_reduce_perf of nccl-tests) with a task for each GPU, and reads
# "Avg bus bandwidth : N" in GB/s from its output. Measures bus_bandwidth.
command=${CHECK_COMMAND:-all_reduce_perf -b 512M -e 1G -f 2 -g 1}
program=${command%% *}
command -v "$program" >/dev/null || { echo "$program is not installed on the node"; exit 77; }
tasks=${SLURM_GPUS_ON_NODE:-1}
# shellcheck disable=SC2086  # The command has words.
output=$(srun --ntasks-per-node="$tasks" --ntasks="$((tasks * SLURM_JOB_NUM_NODES))" ${CHECK_SRUN_OPTIONS:-} $command 2>&1) || {
  echo "$program: $(echo "$output" | grep -m 1 -i 'error\|fail\|abort' || echo "$output" | grep -m 1 .)"
  exit 1
}
bandwidth=$(echo "$output" | sed -n 's/.*Avg bus bandwidth *: *\([0-9.]*\).*/\1/p' | tail -n 1)
[ -n "$bandwidth" ] || { echo "$program printed no average bus bandwidth"; exit 1; }
echo "measure bus_bandwidth ${bandwidth}GB/s"
