#!/bin/sh
# Epilog of workers on which the Slurm Bridge runs pods. Slurm gives what a job has to the next one when its Epilog has
# ended, so the Epilog of a guard, the batch job that has what a pod uses, waits until the pod is gone from this node.
# Other jobs don't wait.
#
# A guard is a job with the admin comment of the bridge, without which no pod runs by it. Only an administrator of Slurm
# can write one, and no user can change it.
#
# The bridge writes the id of a guard in an annotation of the worker pod, which the kubelet shows in this file. Silence
# means that the pod may still run. After ten minutes it drains the node, for its reason. The wait ends with the job at
# the latest: an administrator can end it by setting the node DOWN, and then slurmctld gives to others what the job had.
set -u
PATH=${PATH:-/usr/bin:/bin}:/usr/local/bin:/usr/bin:/bin
file=/etc/podinfo/annotations

# slurmctld is asked about few jobs: those with the output that the bridge gives to guards, and those that were queued
# again, because their user can have changed it meanwhile. The bridge releases no pod by a guard that starts without it.
test "${SLURM_JOB_STDOUT:-}" = /dev/./null || test "${SLURM_JOB_RESTART_COUNT:-}" != 0 || exit 0
job=$SLURM_JOB_ID
mark='{"slurmBridge":'
newline='
'

# 0: it is a guard for which Slurm retains resources. 1: it is none, or has ended here, so that waiting retains nothing.
# 2: Slurm doesn't answer.
ask() {
  # The id of this run of the job (SLUID) means no other task of a job array.
  # squeue may write remarks before it, each on a line: a name was resolved at the second attempt, or slurm.conf has an
  # obsolete word. They are no answer. Nor do they contain what a user has written.
  answer=$(timeout -k 1 60 squeue --noheader --states=all --jobs="${SLURM_JOB_SLUID:-$job}" \
    --Format=admin_comment:15,state:13 2>&1)
  case $?,$newline$answer in
    0,*"$newline$mark"*) ;;
    *"Invalid job id"*) return 1 ;;
    0,"$newline" | *"Invalid job format"*) return 2 ;;
    # A job without an admin comment has "(null)".
    0,*) case ${answer##*"$newline"} in "squeue: "*) return 2 ;; *) return 1 ;; esac ;;
    *) return 2 ;;
  esac
  # As long as Slurm retains what the job has, squeue shows COMPLETING before any of these states.
  case ${answer##*"$mark"} in
    PENDING* | REQUEUE* | COMPLETED* | CANCELLED* | FAILED* | TIMEOUT* | PREEMPTED*) return 1 ;;
    NODE_FAIL* | BOOT_FAIL* | DEADLINE* | OUT_OF_MEMORY* | SPECIAL_EXIT* | REVOKED*) return 1 ;;
  esac
  return 0
}

gone() {
  test -r "$file" || return 1
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

# While slurmctld doesn't answer, it gives nothing to others either.
until ask; do
  test $? -eq 2 || exit 0
  sleep 1
done

waited=0
until gone; do
  waited=$((waited + 1))
  if test $((waited % 60)) -eq 0; then
    ask
    test $? -ne 1 || exit 0
  fi
  test $((waited % 600)) -ne 0 || drain
  sleep 1
done
exit 0
