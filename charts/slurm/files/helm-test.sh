# The test of `helm test`: submits a job to Slurm and checks its output. If that fails, the last line names the cause and the
# remedy. Slurm's commands authenticate with a token.
#
# CLUSTER is the name of the Controller in NAMESPACE. TOKEN_FILE contains the token of USERNAME, from the Secret
# TOKEN_SECRET_NAME. After TIMEOUT_SECONDS the test has failed. Each step sets `why` if it can't succeed yet.
set -u
end=$(($(date +%s) + TIMEOUT_SECONDS))
folder=${TMPDIR:-/tmp}
get="kubectl --namespace $NAMESPACE get"
job=

fail() {
  echo "FAILED: $1"
  [ -z "$job" ] || timeout 10 scancel "$job"
  exit 1
}

# Repeats a step until it succeeds or the time is over.
until_done() {
  shown=
  until "$1"; do
    [ "$(date +%s)" -lt "$end" ] || fail "$why"
    [ "$why" = "$shown" ] || echo "Waiting: $why"
    shown=$why
    sleep 1
  done
}

# Runs a command of Slurm. Its output is in the file `output`, or the reason for which it failed in `error`.
slurm() {
  timeout 20 "$@" >"$folder/output" 2>"$folder/errors" && return 0
  error=$(sed '/^[[:space:]]*$/d' "$folder/errors" | tail -n 1)
  error=${error:-$1 did not end within 20 s}
  return 1
}

reads() {
  slurm "$@" && return 0
  why="slurmctld does not answer at $SLURM_CONF_SERVER ($error). See its state: $get controllers.slinky.slurm.net,pods"
  return 1
}

has_token() {
  why="Secret $TOKEN_SECRET_NAME does not exist. The operator creates it. Check that the operator runs and watches this namespace: \
$get tokens.slinky.slurm.net $CLUSTER-helm-test"
  [ -s "$TOKEN_FILE" ] || return 1
  SLURM_JWT=$(cat "$TOKEN_FILE")
  export SLURM_JWT
}

finds_partition() {
  reads sinfo --noheader --format='%P %a %T' || return 1
  if [ ! -s "$folder/output" ]; then
    why="Slurm has no partition. Set partitions.all.enabled or nodesets.NAME.partition.enabled to true."
    return 1
  fi
  partition=
  # A job can wait for allocated nodes. The default partition, which has a star, is the first choice.
  while read -r name availability state; do
    case "$availability $state" in
      "up idle" | "up idle-" | "up mixed"* | "up allocated"* | "up completing" | "up planned") ;;
      *) continue ;;
    esac
    case "$name" in
      *\*) partition=${name%\*} && break ;;
      *) partition=${partition:-$name} ;;
    esac
  done <"$folder/output"
  [ -z "$partition" ] || return 0
  reads sinfo --noheader --Node --format='%N is %T (%E)' || return 1
  nodes=$(sort -u "$folder/output" | head -n 5 | tr '\n' ';')
  why="No worker can run a job: ${nodes:-no node has registered with slurmctld;} See their state: \
$get nodesets.slinky.slurm.net,pods"
  return 1
}

# The output of the job is a comment in its record, because this pod can't read the files of workers.
submits() {
  if slurm sbatch --parsable --job-name=helm-test --partition="$partition" --nodes=1 --ntasks=1 --time=1 --no-requeue \
    --export=NIL --chdir=/tmp --output=/dev/null; then
    job=$(cut -d ';' -f 1 "$folder/output")
    return 0
  fi <<'END'
#!/bin/sh
PATH=/usr/local/bin:/usr/bin:/bin
exec scontrol update JobId="$SLURM_JOB_ID" Comment="$((20 + 22))@$SLURMD_NODENAME"
END
  why="Slurm refuses a job of the user $USERNAME in the partition $partition ($error). Set helmTest.username to a user who can \
submit jobs."
  return 1
}

# A field of the job's record.
field() {
  tr ' ' '\n' <"$folder/output" | sed -n "s/^$1=//p" | head -n 1
}

has_ended() {
  reads scontrol --oneliner show job "$job" || return 1
  state=$(field JobState)
  case "$state" in
    PENDING | CONFIGURING | RUNNING | COMPLETING | SUSPENDED)
      why="Job $job in the partition $partition is $state (reason: $(field Reason)). Run the test again when a worker is idle."
      return 1
      ;;
  esac
}

until_done has_token
until_done finds_partition
until_done submits
echo "Job $job is submitted to the partition $partition."
until_done has_ended
node=$(field BatchHost)
output=$(field Comment)
if [ "$state" != COMPLETED ]; then
  fail "Job $job ended on node $node with state $state and exit code $(field ExitCode). See slurmd's log: \
kubectl --namespace $NAMESPACE logs --selector app.kubernetes.io/name=slurmd --container slurmd --prefix"
fi
if [ "$output" != "42@$node" ]; then
  fail "Job $job completed on node $node with the output '$output' instead of '42@$node'. See slurmctld's log for the job."
fi
echo "Job $job ran on node $node, and its output is right. Slurm works."
