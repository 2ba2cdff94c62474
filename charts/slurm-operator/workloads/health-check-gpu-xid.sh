#!/bin/sh
# The kernel has logged none of the Xid errors in $XIDS since this pod's slurmd started. After these errors a GPU needs a
# reset, a reboot or a repair. A new pod ignores older errors. If slurmd may not read the kernel's log because it is
# unprivileged, the check passes.
# https://docs.nvidia.com/deploy/xid-errors/
since=$(cat "$SLURM_HEALTH_STATE/started" 2>/dev/null || echo 0)
dmesg 2>/dev/null | awk -v since="$since" -v fatal=" $XIDS " '
  match($0, /NVRM: Xid \(PCI:[^)]*\): [0-9]+/) {
    split(substr($0, RSTART, RLENGTH), part, /\): /)
    stamp = $0
    sub(/^\[ */, "", stamp)
    if (stamp + 0 < since + 0 || index(fatal, " " part[2] " ") == 0) next
    place = part[1]
    sub(/.*\(PCI:/, "", place)
    found = "Xid " part[2] " on GPU " place
  }
  END { if (found != "") { print found; exit 1 } }'
