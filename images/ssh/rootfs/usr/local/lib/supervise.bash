# Runs the daemons of one container. The entrypoints of slurmd and login source it.
#
#   supervise NAME COMMAND…   runs COMMAND in the background, and again one second after each end
#   run_until_term            waits for TERM or INT, passes TERM on to all, returns when all have ended
#
# A daemon that ends is started again in the same container, because other processes in it must continue: job steps outlive
# slurmd, sessions outlive sackd.

keepers=()

supervise() {
  local name=$1
  shift
  (
    child=
    stopping=
    trap 'stopping=yes; [ -z "$child" ] || kill -TERM "$child" 2>/dev/null' TERM INT
    while [ -z "$stopping" ]; do
      "$@" &
      child=$!
      # A TERM that came before the child existed.
      [ -z "$stopping" ] || kill -TERM "$child" 2>/dev/null
      # A trapped signal ends `wait` early.
      while wait "$child"; status=$?; kill -0 "$child" 2>/dev/null; do :; done
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
