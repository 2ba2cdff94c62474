#!/bin/sh
# At least $MEMORY_FREE_PERCENT of the host's memory is available (MemAvailable in proc_meminfo(5)).
awk -v least="$MEMORY_FREE_PERCENT" '
  $1 == "MemTotal:" { total = $2 }
  $1 == "MemAvailable:" { available = $2; known = 1 }
  END {
    if (known && available * 100 < total * least) {
      print "less than " least " % of the memory is available"
      exit 1
    }
  }' "${MEMINFO:-/proc/meminfo}"
