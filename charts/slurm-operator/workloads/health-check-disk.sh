#!/bin/sh
# The file systems of $DISKS have at least $DISK_FREE_PERCENT of their space and inodes free, and are writable. Folders that
# don't exist are ignored.
for disk in $DISKS; do
  test -e "$disk" || continue
  echo "looking at $disk" >&2
  if test "$disk" != / && ! test -w "$disk"; then
    echo "$disk can't be written to"
    exit 1
  fi
  for what in "k room" "i inodes"; do
    used=$(df -P "-${what%% *}" "$disk" | awk 'NR == 2 { print $5 }')
    # A file system without a limit shows -.
    case ${used%\%} in '' | *[!0-9]*) continue ;; esac
    if test $((100 - ${used%\%})) -lt "$DISK_FREE_PERCENT"; then
      echo "$disk has less than $DISK_FREE_PERCENT % of its ${what#* } left"
      exit 1
    fi
  done
done
