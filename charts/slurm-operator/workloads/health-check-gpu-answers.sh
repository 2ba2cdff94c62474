#!/bin/sh
# nvidia-smi lists the GPUs in time. The next checks use its output, and pass without it.
answer=$SLURM_HEALTH_STATE/nvidia-smi
rm -f "$answer"
if ! command -v nvidia-smi >/dev/null; then
  echo "slurmd's container has no nvidia-smi"
  exit 1
fi
nvidia-smi -L >"$answer.new" 2>&1
status=$?
if test "$status" -ne 0; then
  echo "nvidia-smi -L: exit status $status: $(head -n 1 "$answer.new")"
  exit 1
fi
mv "$answer.new" "$answer"
