#!/bin/sh
# A job in a container of CHECK_IMAGE starts. Measures start_time.
[ -n "${CHECK_IMAGE:-}" ] || { echo "no image is set in env.CHECK_IMAGE"; exit 77; }
begin=$(date +%s%N)
output=$(srun --ntasks=1 --nodes=1 --nodelist="$SLURMD_NODENAME" --container="$CHECK_IMAGE" true 2>&1) || {
  echo "no container of $CHECK_IMAGE starts: $(echo "$output" | grep -m 1 .)"
  exit 1
}
echo "measure start_time $((($(date +%s%N) - begin) / 1000000))ms"
