"""The batch script of a check's job: it runs the check's script, and reports in the job's comment.

The comment is `check RESTARTS NAME=VALUE,… | TEXT`: the measured values that the script printed as
`measure NAME VALUE`, and its first other line of output. `sidecars.checks.core.outcome` reads it.
"""

import base64

from sidecars.policy.checks.declared import Check

_SCRIPT = """#!/bin/sh
# The check NAME. An administrator has declared it: kubectl get configmap.
report() {
  comment="comment=check ${SLURM_RESTART_COUNT:-0} $1| $2"
  timeout 20 scontrol update "jobid=$SLURM_JOB_ID" "$comment" >/dev/null 2>&1
}
umask 077
run=$(mktemp -d "${TMPDIR:-/tmp}/check.XXXXXX" 2>/dev/null) ||
  run=$(mktemp -d /dev/shm/check.XXXXXX 2>/dev/null) || {
  report "" "neither /tmp nor /dev/shm can be written to"
  exit 1
}
pid= watch=
clean() {
  [ -z "$pid" ] || kill -KILL "-$pid"
  [ -z "$watch" ] || kill -KILL "-$watch"
  rm -rf "$run"
} 2>/dev/null
# A user's job waits for the node: nothing may delay the end.
trap 'clean; exit 143' TERM INT
base64 -d >"$run/check" <<'END' && chmod 700 "$run/check" && mkfifo "$run/pipe" || {
CONTENT
END
  report "" "the script can't be written to $run"
  clean
  exit 1
}
export CHECK_NAME='NAME' CHECK_FOLDER="$run"
# No more than this is kept, and what follows is read all the same: the script never waits for it.
{ head -c 65536 >"$run/output"; cat >/dev/null; } <"$run/pipe" &
reader=$!
setsid "$run/check" >"$run/pipe" 2>&1 </dev/null &
pid=$!
setsid sh -c "sleep TIMEOUT; : >'$run/late'; kill -KILL -$pid" >/dev/null 2>&1 &
watch=$!
wait "$pid"
status=$?
kill -KILL "-$pid" 2>/dev/null
wait "$reader"
[ ! -e "$run/late" ] || status=124
values='s/^measure \\([a-z][a-z0-9_]*\\) \\([0-9.]*\\) *\\([A-Za-z%/]*\\)$/\\1=\\2\\3/p'
measured=$(sed -n "$values" "$run/output" | head -n 8 | paste -sd , -)
text=$(grep -av '^measure ' "$run/output" | tr -cd '[:print:]\\n' | grep -m 1 . |
  tr -d '"|\\\\' | cut -c 1-120)
report "$measured " "$text"
clean
exit "$status"
"""


def batch_script(check: Check) -> str:
    """Return the script to submit."""
    content = base64.encodebytes(check.script.encode()).decode().strip()
    script = _SCRIPT.replace("NAME'", f"{check.name}'").replace(
        "check NAME.", f"check {check.name}."
    )
    return script.replace("TIMEOUT", str(check.timeout)).replace("CONTENT", content)
