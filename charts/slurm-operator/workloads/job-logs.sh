#!/bin/sh
# Prolog and Epilog of clusters with job logs: announces the jobs of this node to the container `logs`, which prints the output.
# https://slurm.schedmd.com/prolog_epilog.html
#
# slurmd runs it as root, before the site's own scripts. It never fails a job and sends no request, with one exception: the
# names of some output files contain what only slurmctld knows (%x, %A, %a, %b). Then squeue is run once, in the background.
#
# Files in the folder, each for a job and how often it was restarted. The container deletes them.
#   JOB-RESTARTS.job              the job, as items KEY=VALUE that each end with a zero byte; replaced whole
#   JOB-RESTARTS.end              the job's epilog has begun
#   JOB-RESTARTS.prolog, .epilog  for the output of the site's own scripts
set -u
# A prolog that fails drains the node.
trap 'exit 0' EXIT
umask 022
PATH=${PATH:-/usr/bin:/bin}:/usr/local/bin:/usr/bin:/bin
LC_ALL=C
logs=${SLURM_LOGS_DIR:-/run/slurm-logs}
job=${SLURM_JOB_ID:-}
# Workers without the container don't have the folder.
test -d "$logs" || exit 0
case $job in '' | *[!0-9]*) exit 0 ;; esac
restarts=${SLURM_JOB_RESTART_COUNT:-0}
key=$job-$restarts

# announce ITEM...: replaces the record of the job.
announce() {
  printf '%s\0' "job=$job" "uid=$SLURM_JOB_UID" "gid=${SLURM_JOB_GID:-}" "user=${SLURM_JOB_USER:-}" \
    "partition=${SLURM_JOB_PARTITION:-}" "restarts=$restarts" "sluid=${SLURM_JOB_SLUID:-}" \
    "workDir=${SLURM_JOB_WORK_DIR:-}" "$@" >"$logs/.$key.new" && mv "$logs/.$key.new" "$logs/$key.job"
}

# The batch script runs on one node of the job only. slurmstepd creates a folder for it there.
runs_here() {
  several_nodes || return 0
  spool=${SLURM_CONF:-}
  spool=${spool%/conf-cache/*}
  test "$spool" != "${SLURM_CONF:-}" || spool=/var/spool/slurmd
  folder=$spool/$(printf 'job%05d' "$job")
  looks=0
  until test -d "$folder"; do
    test ! -e "$logs/$key.end" && test "$looks" -lt 3000 || return 1
    looks=$((looks + 1))
    if test "$looks" -le 100; then sleep 0.05; else sleep 0.2; fi
  done
}

needs_slurmctld() { printf '%s\n' "${SLURM_JOB_STDOUT:-}" "${SLURM_JOB_STDERR:-}" | grep -q '%[0-9]*[xAab]'; }

# Prints "ARRAY_JOB TASK NAME" of the job.
ask() {
  for pause in 0 2 10; do
    sleep "$pause"
    found=$(timeout -k 1 10 squeue --noheader --states=all --jobs="$job" --format='%A %F %K %j' 2>/dev/null |
      sed -n "s/^$job //p" | head -n 1)
    test -z "$found" || break
  done
  printf '%s\n' "$found"
}

outputs() {
  runs_here || return 0
  if ! needs_slurmctld; then
    announce "stdout=$SLURM_JOB_STDOUT" "stderr=${SLURM_JOB_STDERR:-}"
    return
  fi
  found=$(ask)
  if test -z "$found"; then
    announce "stdout=$SLURM_JOB_STDOUT" "stderr=${SLURM_JOB_STDERR:-}"
    return
  fi
  array=${found%% *} found=${found#* }
  task=${found%% *} name=${found#* }
  announce "stdout=$SLURM_JOB_STDOUT" "stderr=${SLURM_JOB_STDERR:-}" "arrayJob=$array" "arrayTask=$task" "name=$name"
}

several_nodes() { case ${SLURM_JOB_NODELIST:-} in *[,[]*) ;; *) false ;; esac }

if test "${1:-}" = outputs; then
  # The prolog continues when its pipe is closed.
  exec >/dev/null
  outputs
elif test "${SLURM_SCRIPT_CONTEXT:-}" = epilog_slurmd; then
  for record in "$logs/$job"-*.job; do
    test -e "$record" || continue
    true >>"${record%.job}.epilog"
    true >"${record%.job}.end"
  done
elif test "${SLURM_SCRIPT_CONTEXT:-}" = prolog_slurmd; then
  true >>"$logs/$key.prolog"
  if test -z "${SLURM_JOB_STDOUT:-}"; then
    announce
  elif several_nodes || needs_slurmctld; then
    announce
    # slurmd kills the processes of this script at its end, and waits until none has its output. So this one gets a session
    # and a pipe of its own, and the script continues when that one runs.
    : "$(setsid "$0" outputs </dev/null 2>/dev/null &)"
  else
    outputs
  fi
fi
exit 0
