#!/bin/sh
# No GPU has memory errors that need a reset or a replacement: uncorrected errors since the driver was loaded, rows whose
# remapping failed or waits for a reset, pages that wait to be retired. GPUs without these counters show [N/A].
# https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html
test -e "$SLURM_HEALTH_STATE/nvidia-smi" || exit 0
# A driver without a field refuses the query.
for field in ecc.errors.uncorrected.volatile.total remapped_rows.failure remapped_rows.pending retired_pages.pending; do
  nvidia-smi "--query-gpu=index,$field" --format=csv,noheader,nounits 2>/dev/null
done | awk -F ', *' '
  # Only numbers, Yes and No count. Others, such as [N/A], are ignored.
  $2 ~ /^([1-9][0-9]*|[Yy]es)$/ && $1 ~ /^[0-9]+$/ { bad[$1] = 1; n++ }
  END {
    if (!n) exit 0
    for (gpu in bad) list = list (list == "" ? "" : ",") gpu
    print "uncorrected memory errors on GPU " list
    exit 1
  }'
