#!/bin/sh
# PrologSlurmctld of clusters with power saving: it ends as soon as all nodes of the job are up, and slurmctld starts the job
# then. Without it, slurmctld looks every 30 s, and for a batch job at its first node only.
# https://slurm.schedmd.com/prolog_epilog.html
#
# It runs beside the site's own scripts, after them. It never fails a job, because slurmctld would queue it again. It ends in
# any case after ResumeTimeout, when slurmctld gives the job back itself, and before PrologTimeout ends it as a failure.
#
# However many jobs wait, one script asks slurmctld for its nodes: the one that has the lock. It looks twice a second, or less
# often if the answers take long, and ends the scripts whose nodes are up. The others sleep until they get the lock.
#
# Files in the folder:
#   lock       the lock
#   asking     is newer than what waited when slurmctld was asked last
#   asleep     the seconds since the epoch when it was asked for, then the nodes that are not up
#   left       the same, then those of them that have no job
#   JOB.waits  what the script of a job waits with (a process id), then the nodes of the job
set -u
trap 'exit 0' EXIT
PATH=${PATH:-/usr/bin:/bin}:/usr/local/bin:/usr/bin:/bin
LC_ALL=C
folder=${SLURM_AWAIT_DIR:-/run/slurmctld/awaited}
job=${SLURM_JOB_ID:-}
case $job in '' | *[!0-9]*) exit 0 ;; esac
nodes=$(scontrol show hostnames "${SLURM_JOB_NODELIST:-}") && test -n "$nodes" || exit 0
now=$(date +%s)

# setting KEY: its number in slurm.conf, if it is set
setting() {
  sed -n "s/^$1=\([0-9]\{1,\}\)[[:space:]]*\(#.*\)\{0,1\}\$/\1/Ip" "${SLURM_CONF:-/etc/slurm/slurm.conf}" | tail -n 1
}

resume=$(setting ResumeTimeout)
prolog=$(setting PrologTimeout)
test -n "$prolog" || prolog=$(setting PrologEpilogTimeout)
end=$((now + ${resume:-600} + 60))
if test -n "$prolog" && test $((now + prolog - 5)) -lt "$end"; then end=$((now + prolog - 5)); fi
mkdir -p "$folder" || exit 0

# Nodes that are DOWN are not waited for: slurmctld takes them from the job. Nor are those that have no job: they were taken from
# it already. slurmctld may not end the script of a job that it queues again, and starts the job on no other node meanwhile.
look() {
  : >"$folder/asking"
  asked=$(date +%s)
  timeout -k 1 20 sinfo --noheader --all --Node --states=powering_up,powered_down,powering_down --format='%N %T' \
    >"$folder/.$job.sinfo" 9>&- || return
  {
    echo "$asked"
    awk '$2 !~ /^down/ { print $1 }' "$folder/.$job.sinfo"
  } >"$folder/.$job.asleep" && mv "$folder/.$job.asleep" "$folder/asleep"
  {
    echo "$asked"
    awk '$2 ~ /^(idle|drained|planned|reserved)/ { print $1 }' "$folder/.$job.sinfo"
  } >"$folder/.$job.left" && mv "$folder/.$job.left" "$folder/left"
}

is_up() { ! printf '%s\n' "$nodes" | grep -qxF -f "$folder/asleep"; }

is_left() { printf '%s\n' "$nodes" | grep -qxF -f "$folder/left"; }

# A node that is up is not powered down and given to a job within a second.
is_fresh() {
  asked=0
  read -r asked 2>/dev/null <"$folder/asleep"
  test $(($(date +%s) - asked)) -le 1
}

# End the scripts whose nodes are up, or have no job although the script waited before, and forget those of jobs that were
# cancelled.
wake() {
  for file in "$folder"/*.waits; do
    read -r id 2>/dev/null <"$file" || continue
    kill -0 "$id" 2>/dev/null || rm -f "$file"
  done
  set -- "$folder"/*.waits
  test -e "$1" || return 0
  before=$(find "$folder" -name '*.waits' ! -newer "$folder/asking" | tr '\n' ' ')
  awk -v before="$before" '
       BEGIN { for (n = split(before, files, " "); n > 0; n--) old[files[n]] }
       FNR == 1 { file += 1; id = $1; if (file > 2) { name[id] = FILENAME; up[id] = 1 }; next }
       file == 1 { asleep[$1]; next }
       file == 2 { left[$1]; next }
       $1 in asleep { up[id] = 0 }
       $1 in left && FILENAME in old { gone[id] }
       END { for (id in up) if (up[id] || id in gone) print id, name[id] }' "$folder/asleep" "$folder/left" "$@" |
    while read -r id file; do
      rm -f "$file"
      # The script may have been killed, and another process have its id.
      test "$(cat "/proc/$id/comm" 2>/dev/null)" = flock && kill "$id"
    done
}

milliseconds() { echo $(($(date +%s%N) / 1000000)); }

lead() {
  until is_fresh && is_up; do
    test "$(date +%s)" -lt "$end" || return
    begun=$(milliseconds)
    look && { wake; is_left && return; }
    is_up && return
    pause=$((4 * ($(milliseconds) - begun)))
    test "$pause" -ge 500 || pause=500
    sleep "$((pause / 1000)).$(printf '%03d' $((pause % 1000)))" 9>&-
  done
}

is_fresh && is_up && exit 0
exec 9>"$folder/lock"
while true; do
  left=$((end - $(date +%s)))
  test "$left" -gt 0 || exit 0
  flock -w "$left" 9 &
  waits=$!
  printf '%s\n' "$waits" "$nodes" >"$folder/.$job.waits" && mv "$folder/.$job.waits" "$folder/$job.waits"
  wait "$waits"
  code=$?
  test -e "$folder/$job.waits" || exit 0
  # A signal ended the wait, but no one has seen the nodes up.
  test "$code" -le 128 || continue
  rm -f "$folder/$job.waits"
  test "$code" = 0 && lead
  exit 0
done
