# Runs the daemons of one container. The entrypoints of slurmd and login source it.
#
#   supervise [--check CHECK] NAME COMMAND…   runs COMMAND in the background, and again one second after each end. Ends it
#                                             if CHECK, which has succeeded before, fails for 80 to 120 seconds
#   run_until_term                            waits for TERM or INT, passes TERM on to all, returns when all have ended.
#                                             Kills a daemon that still runs 15 seconds later, unless it has a child
#
# A daemon that ends is started again in the same container, because other processes in it must continue: job steps outlive
# slurmd, sessions outlive sackd.

keepers=()
check_seconds=10
check_failures=8
# A worker has 20 seconds left when its preStop hook ends because of the grace period.
stop_seconds=15

# Kills the process of a daemon that doesn't answer. Not by TERM, which a daemon that hangs ignores.
kill_if_silent() {
  local name=$1 check=$2 daemon=$3 answered= failures=0
  while sleep "$check_seconds"; do
    if "$check" 2>/dev/null; then
      answered=yes failures=0
    elif [ -n "$answered" ] && [ "$((failures += 1))" -ge "$check_failures" ]; then
      echo "$name didn't answer $failures times in a row; ending it" >&2
      kill -KILL "$daemon"
      return
    fi
  done
}

# At TERM, slurmd waits for the jobs that it is ending. To report its end, the slurmstepd of such a job needs a credential from
# slurmd, so both would wait forever. A Prolog or an Epilog, which is a child of slurmd, may take its time.
kill_if_slow() {
  local name=$1 daemon=$2
  sleep "$stop_seconds"
  while ps -o stat= --ppid "$daemon" | grep -qv '^Z'; do
    sleep 1
  done
  echo "$name didn't end within $stop_seconds s of TERM; killing it" >&2
  kill -KILL "$daemon"
}

supervise() {
  local check=
  if [ "$1" = --check ]; then
    check=$2
    shift 2
  fi
  local name=$1
  shift
  (
    child=
    watcher=
    stopping=
    end_child() {
      # A daemon that is ending doesn't answer.
      [ -z "$watcher" ] || kill "$watcher" 2>/dev/null
      kill -TERM "$child" 2>/dev/null || return 0
      kill_if_slow "$name" "$child" &
      watcher=$!
    }
    trap 'stopping=yes; [ -z "$child" ] || end_child' TERM INT
    while [ -z "$stopping" ]; do
      "$@" &
      child=$!
      if [ -n "$check" ]; then
        kill_if_silent "$name" "$check" "$child" &
        watcher=$!
      fi
      # A TERM that came before the child existed.
      [ -z "$stopping" ] || end_child
      # A trapped signal ends `wait` early.
      while wait "$child"; status=$?; kill -0 "$child" 2>/dev/null; do :; done
      [ -z "$watcher" ] || kill "$watcher" 2>/dev/null
      if [ -z "$stopping" ]; then
        echo "$name ended with status $status; starting it again" >&2
        sleep 1 &
        child=$!
        wait "$child"
      fi
    done
  ) &
  keepers+=("$!")
}

run_until_term() {
  local keeper
  trap 'kill -TERM "${keepers[@]}" 2>/dev/null' TERM INT
  for keeper in "${keepers[@]}"; do
    while wait "$keeper"; kill -0 "$keeper" 2>/dev/null; do :; done
  done
}
