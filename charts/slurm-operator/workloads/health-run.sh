#!/bin/sh
# Slurm's HealthCheckProgram: runs the checks in its folder, drains the node if one fails, undrains it if all pass.
# https://slurm.schedmd.com/slurm.conf.html#OPT_HealthCheckProgram
#
# slurmd runs it as root, before it registers and then at each HealthCheckInterval. A check is a file check-NAME in this
# folder that `settings` names in CHECKS. It fails by its exit status, with the reason as its first line on standard output;
# or by not ending within CHECK_SECONDS, with its last line on standard error as the place. All checks have BUDGET_SECONDS.
#
# The drain's reason begins with "slurm-node: health: ". A node with another reason is not changed, drained or not. Only nodes
# with a fault, now or in the last run, send requests to Slurm.
set -u
umask 077
PATH=${PATH:-/usr/bin:/bin}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/nvidia/bin
# GKE mounts its NVIDIA driver there, where no loader looks.
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/nvidia/lib64"
LC_ALL=C
own='slurm-node: health: '
here=${0%/*}
node=${SLURMD_NODENAME:-$(uname -n)}
pod=${SLURM_NODE_DIR:-/run/slurm-node}
logs=${SLURM_LOGS_DIR:-/run/slurm-logs}
SLURM_HEALTH_STATE=${SLURM_HEALTH_STATE:-/run/slurm-health}
state=$SLURM_HEALTH_STATE
CHECKS='' CHECK_SECONDS=10 BUDGET_SECONDS=25
set -a
. "$here/settings"
set +a

now() { date +%s; }

# Whether a process of this id still runs a check.
hangs() { tr '\0' ' ' <"/proc/$1/cmdline" 2>/dev/null | grep -q "/check-"; }

# The output of a check as part of a reason: one line of plain characters.
words() { head -n 1 "$1" | tr -c '[:print:]' ' ' | tr -d "\"'\\\\" | cut -c1-120 | sed 's/ *$//'; }
words_after() { test ! -s "$1" || { tail -n 1 "$1" >"$1.last" && echo ", $(words "$1.last")"; }; }

# examine NAME SECONDS: runs a check. If it fails, the reason is on standard output.
examine() {
  out=$state/$1.out err=$state/$1.err rc=$state/$1.rc hung=$state/$1.pid
  # A process that the kernel blocks can't be killed. A second one is never started.
  if test -s "$hung" && hangs "$(cat "$hung")"; then
    echo "$1: hasn't ended since it was started$(words_after "$err")"
    return
  fi
  rm -f "$hung" "$rc" "$rc.new"
  # In a separate session, so that all of its processes can be ended.
  setsid sh -c '"$1" >"$2" 2>"$3" </dev/null; echo $? >"$4.new" && mv "$4.new" "$4"' \
    sh "$here/check-$1" "$out" "$err" "$rc" >/dev/null 2>&1 &
  pid=$! looks=0
  until test -s "$rc"; do
    if test "$looks" -ge $(($2 * 20)); then
      kill -9 "-$pid" 2>/dev/null
      echo "$pid" >"$hung"
      echo "$1: no answer within $2 s$(words_after "$err")"
      return
    fi
    looks=$((looks + 1))
    # Most checks end at once.
    if test "$looks" -le 5; then sleep 0.01; else sleep 0.05; fi
  done
  status=$(cat "$rc")
  test "$status" != 0 || return
  test -s "$out" || tail -n 1 "$err" >"$out"
  test -s "$out" || echo "exit status $status" >"$out"
  echo "$1: $(words "$out")"
}

# Prints a line to slurmd's log and, on workers with job logs, to their log.
say() {
  printf '%s\n' "$1"
  test ! -d "$logs" || (umask 022 && printf '%s\n' "$1" >>"$logs/health")
}

scontrol_() { timeout -k 1 8 scontrol "$@"; }

# Reads the node's states and reason. Fails if Slurm has no such node or doesn't answer.
look() {
  record=$(scontrol_ show node "$node" 2>/dev/null) || return 1
  states=+$(printf '%s\n' "$record" | sed -n 's/^ *State=\([^ ]*\).*/\1/p')
  reason=$(printf '%s\n' "$record" | sed -n 's/^ *Reason=//p' | sed 's/ \[[^][]*@[^][]*\]$//')
}

is_own() { case $reason in "$own"*) true ;; *) false ;; esac; }
is_drained() { case $states in *+DRAIN*) true ;; *) false ;; esac; }
is_down() { case $states in +DOWN*) true ;; *) false ;; esac; }

# The kubelet is stopping slurmd: the pod manages the drain.
is_leaving() { test -e "$pod/hook/stop"; }

drain() {
  if is_drained && test "$reason" = "$1"; then
    return
  elif is_drained && ! is_own; then
    say "not drained, because it already is: $reason"
  elif is_down && test -n "$reason" && ! is_own; then
    say "not drained, because it is DOWN: $reason"
  else
    scontrol_ update "NodeName=$node" State=DRAIN "Reason=$1" && say "drained $node"
  fi
}

undrain() {
  is_drained && is_own || return 0
  scontrol_ update "NodeName=$node" State=UNDRAIN && say "undrained $node: it is healthy again"
}

mkdir -p "$state" || exit 1
# One run at a time: slurmd starts the next run although this one may still wait for Slurm.
if ! mkdir "$state/lock" 2>/dev/null; then
  ! kill -0 "$(cat "$state/lock/pid" 2>/dev/null || echo none)" 2>/dev/null || exit 0
fi
echo $$ >"$state/lock/pid"
trap 'rm -rf "$state/lock"' EXIT
trap 'exit 1' TERM INT HUP

first=false
test -e "$state/started" || {
  first=true
  cut -d' ' -f1 /proc/uptime >"$state/started"
}

failed='' end=$(($(now) + BUDGET_SECONDS))
for check in $CHECKS; do
  left=$((end - $(now)))
  test "$left" -ge 1 || break
  test "$left" -le "$CHECK_SECONDS" || left=$CHECK_SECONDS
  output=$(examine "$check" "$left")
  test -z "$output" || failed="$failed${failed:+; }$output"
done

if test -n "$failed"; then
  failed=$(printf '%s' "$own$failed" | cut -c1-250)
  say "$failed"
  : >"$state/failed"
fi
if "$first"; then
  # Not registered yet. A node with a fault is drained as soon as it registers, not after the next interval.
  if test -n "$failed"; then
    setsid sh -c 'n=0; while test $n -lt 60; do n=$((n + 1)); sleep 0.5
      timeout 8 scontrol show node "$2" >/dev/null 2>&1 && exec "$1"; done' sh "$0" "$node" </dev/null >/dev/null 2>&1 &
  fi
elif is_leaving; then
  :
elif test -n "$failed"; then
  look && drain "$failed" || say "Slurm doesn't answer: the next run repeats the request"
elif test -e "$state/failed" || test ! -e "$state/known"; then
  # An earlier pod of this name may have left its drain.
  look && undrain && rm -f "$state/failed" && : >"$state/known"
fi
test -z "$failed"
