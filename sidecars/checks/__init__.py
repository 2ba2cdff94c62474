"""The role `checks`: `slurm-sidecars checks run` runs one check on the idle nodes of a cluster, as
Slurm jobs.

| variable | meaning |
|---|---|
| SLURMRESTD_URL | slurmrestd's address |
| CHECK_FILE | the declared check, a JSON object; each other `*.json` beside it is another check |
| CHECK_TOKEN_FILE | a token of SlurmUser, to read, drain and undrain nodes, and to cancel jobs |
| CHECK_JOB_TOKEN_FILE | a token of the user of the check's jobs |
| CHECK_RESULTS | NAMESPACE/NAME of the result's ConfigMap; without it, the result is only logged |
"""
