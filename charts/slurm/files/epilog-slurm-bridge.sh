#!/bin/sh
# Epilog of workers on which the Slurm Bridge runs pods. Slurm gives what a job has to the next one when its Epilog has
# ended, so the Epilog of a guard, the batch job that has what a pod uses, waits until the pod is gone from this node.
# Other jobs don't wait.
#
# The bridge writes the job's id in an annotation of the worker pod, which the kubelet shows in this file. Silence means
# that the pod may still run: nothing but the id ends the script. After ten minutes it drains the node, for its reason.
set -u
PATH=${PATH:-/usr/bin:/bin}:/usr/local/bin:/usr/bin:/bin
file=/etc/podinfo/annotations

# A user can change the comment and the name of a job while it runs, but not this path, by which a job is a guard.
test "${SLURM_JOB_STDOUT:-}" = /dev/./null || exit 0
job=${SLURM_JOB_ID:-}

gone() {
  test -n "$job" && test -r "$file" || return 1
  while read -r line; do
    case $line in
      scheduler.slinky.slurm.net/guards-gone=*)
        ids=${line#*\"}
        case ,${ids%\"*}, in *",$job,"*) return 0 ;; esac
        ;;
    esac
  done <"$file"
  return 1
}

drain() {
  # The reason of another drain remains.
  case $(timeout -k 1 10 scontrol --oneliner show node "${SLURMD_NODENAME:-}" 2>/dev/null) in
    *" State="*DRAIN*) return ;;
    *" State="*) ;;
    *) return ;;
  esac
  timeout -k 1 10 scontrol update NodeName="$SLURMD_NODENAME" State=DRAIN \
    Reason="slurm-bridge: the bridge has not confirmed that the pod of job $job is gone" >/dev/null 2>&1
}

waited=0
until gone; do
  waited=$((waited + 1))
  test $((waited % 600)) -ne 0 || drain
  sleep 1
done
exit 0
