#!/bin/sh
# No GPU has memory errors that only a reset or a replacement heals: uncorrected ones since the driver was loaded, rows
# whose remapping failed or waits for a reset, pages that wait to be retired. GPUs that don't have these counters say so.
# https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html
test -e "$SLURM_HEALTH_STATE/nvidia-smi" || exit 0
# A driver that doesn't know a field refuses the query.
for field in ecc.errors.uncorrected.volatile.total remapped_rows.failure remapped_rows.pending retired_pages.pending; do
  nvidia-smi "--query-gpu=index,$field" --format=csv,noheader,nounits 2>/dev/null
done | awk -F ', *' '
  # Numbers, Yes and No; all else, such as [N/A], says nothing.
  $2 ~ /^([1-9][0-9]*|[Yy]es)$/ && $1 ~ /^[0-9]+$/ { bad[$1] = 1; n++ }
  END {
    if (!n) exit 0
    for (gpu in bad) list = list (list == "" ? "" : ",") gpu
    print "uncorrected memory errors on GPU " list
    exit 1
  }'
