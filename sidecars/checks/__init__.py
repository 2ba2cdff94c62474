"""The role `checks`: `slurm-sidecars checks run` runs one check on the idle nodes of a cluster, as Slurm jobs.

| variable | meaning |
|---|---|
| SLURMRESTD_URL | slurmrestd's address |
| CHECK_FILE | the declared check, a JSON object; the other `*.json` beside it are the other checks |
| CHECK_TOKEN_FILE | a token of SlurmUser: it reads, drains and undrains nodes, and cancels the check's jobs |
| CHECK_JOB_TOKEN_FILE | a token of the user of the check's jobs |
| CHECK_RESULTS | NAMESPACE/NAME of the ConfigMap for the result; without it, the result is only logged |
"""
