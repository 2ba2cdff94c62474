#!/bin/sh
# Room and inodes are left on the file systems of $DISKS, at least $DISK_FREE_PERCENT each, and they can be written to.
# Folders that aren't there don't count.
for disk in $DISKS; do
  test -e "$disk" || continue
  echo "looking at $disk" >&2
  if test "$disk" != / && ! test -w "$disk"; then
    echo "$disk can't be written to"
    exit 1
  fi
  for what in "k room" "i inodes"; do
    used=$(df -P "-${what%% *}" "$disk" | awk 'NR == 2 { print $5 }')
    # A file system without a limit says -.
    case ${used%\%} in '' | *[!0-9]*) continue ;; esac
    if test $((100 - ${used%\%})) -lt "$DISK_FREE_PERCENT"; then
      echo "$disk has less than $DISK_FREE_PERCENT % of its ${what#* } left"
      exit 1
    fi
  done
done
