"""Slurm schedules Kubernetes pods: what the role `bridge` decides. Pure: records and the time in,
actions out.

A pod waits behind a scheduling gate. A placeholder job waits for it in Slurm's queue: an external
job, which needs no slurmd, or on nodes with a slurmd a batch job, the guard. When the job runs, the
pod is released to the job's node.

- `manifests`: the fields of pods and nodes that decisions need.
- `tenants`: which Slurm user, accounts, partitions and QOS a namespace has.
- `groups`: which pods start together, and how many they are.
- `shape`: what a job requests for a pod, or why it can't have one.
- `records`: what is known of pods and jobs, and the actions.
- `causes`: classes of Slurm's reasons.
- `decide`: what to do about pods and jobs.
- `admission`: what the webhook answers that adds the gate.
- `certificate`: when its certificate is renewed.
- `nodes`: what to do about the records of nodes in Slurm.
- `guards`: nodes with a slurmd: where a pod gets a guard, and what is written for the Epilogs.

What the caller has to do, so that the decisions are right:
- Read the details of jobs that are new or have changed state first, and then the states of all jobs
  (`GET jobs/state/`). A job can only have got what another one had if the states show the end of
  that one.
- Set `View.known` only when the details of every listed job were read once, and the answer is
  neither an error nor empty after one that wasn't. Keep the slots of a job when it ends: Slurm's
  record of an ended job lacks them.
- Set `Pod.node` from the moment on when a Release was sent. Write the label only on a pod without
  one (JSON patch, `test`), and remove the gate only together with affinity, toleration and
  annotation.
- Keep a group in `View.submitting` until its job is listed, or until a list that was begun after
  the time limit of the submission lacks it.

Observed with Slurm 26.05.5 (slurmctld and slurmrestd alone):
- A user's own token can't set admin_comment (number 2002), so that the comment of a submission
  identifies the job. One update with the token of SlurmUser sets admin_comment and lets the held
  job start.
- slurmctld finds the uid of the token's user; a name that it lacks is refused with 6010. It accepts
  root.
- `Extra` in node_conf, quoted in any way, fails ("Failure to create node"). `POST node/NAME` with
  `extra` sets it.
- excluded_nodes with a name that Slurm lacks refuses the job (2018): exclude only nodes that have a
  record.
- Each component of a heterogeneous job has its own comment and admin comment, is started alone, and
  can be cancelled alone. The end of the first one ends the others, and so does the loss of a node.
- Slurm places the components in their order, no two on one node, each on as many nodes as its range
  allows.
- A heterogeneous job is started by the backfill scheduler alone (bf_interval, 30 s).
- The end of an external job doesn't wake the scheduler: the next job waits for sched_interval (60
  s), for the backfill scheduler (30 s), or for a submission.
- The cores, the memory and the GRES of a batch job are those of another one only when its Epilog
  has ended. Meanwhile Slurm starts nothing else on the node, and the next job waits with the reason
  Resources.
- The Epilog runs again when slurmd is killed and starts within SlurmdTimeout. After it, the node is
  DOWN and the job has ended: without a drain, the node accepts jobs as soon as slurmd is back.
- The Epilog sees the comment that the job has at its end, which the job's user may have changed.
- A job that Slurm lacks: 404 with number 2017. Cancelling one that has ended, or none: 200.
- `DELETE job/ID` with the token of a user who neither owns the job nor is an operator did not
  return within 10 s, and slurmctld answered nobody after that. Cancel with the token of SlurmUser
  alone.
"""
