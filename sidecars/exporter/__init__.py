"""Role `exporter`: Prometheus metrics of one Slurm cluster, read through slurmrestd.

`slurm-sidecars exporter` takes no arguments. Environment variables configure it
(`sidecars.contract.environment`):

| variable | default | meaning |
|---|---|---|
| SLURMRESTD_URL | required | where slurmrestd answers, such as `http://slurm-restapi.slurm:6820` |
| EXPORTER_TOKEN_FILE | | a file with a Slurm token; read before each request |
| SLURM_JWT_KEY_FILE | `/etc/slurm-jwt/jwt.key` | without a token file: the key that signs tokens |
| EXPORTER_USER | `slurm` | the Slurm user of tokens that the exporter signs |
| EXPORTER_INTERVAL_SECONDS | 30 | time between two reads of the same data |
| EXPORTER_FAMILIES | all but `job` | the families that are served, separated by commas |
| EXPORTER_NAME_SETS | `own` | of `own`, `reference` (SchedMD's) and `vpenso`, separated by commas |
| EXPORTER_MAX_JOBS | 1000 | the most jobs that have series in the family `job`; 0 for none |
| EXPORTER_PORT | 8080 | the TCP port |
| EXPORTER_TLS_CERTIFICATE_FILE | | the certificate to serve over TLS; read again when it changes |
| EXPORTER_TLS_KEY_FILE | | its key; needed with the certificate |
| EXPORTER_CHECKS_FOLDER | | the folder with the checks that run as Slurm jobs, and their results |
| EXPORTER_NODESETS | | the NodeSets whose wanted replicas are computed, as JSON (`declared`) |
| EXPORTER_EXTERNAL_METRICS_PORT | | the TLS port of external.metrics.k8s.io; needs the next three |
| EXPORTER_EXTERNAL_METRICS_CERTIFICATE_FILE | | its certificate; read again when it changes |
| EXPORTER_EXTERNAL_METRICS_KEY_FILE | | the key of that certificate |
| EXPORTER_EXTERNAL_METRICS_CLIENT_CA | | the API servers' authority, as PEM; unset: all may read |
| EXPORTER_EXTERNAL_METRICS_CLIENT_NAMES | | its common names, separated by commas; unset: any |
| EXPORTER_NAMESPACE | | the namespace of the NodeSets, for which that API answers |

The port answers three paths, over TLS if it is configured:

- `/metrics`: text, or OpenMetrics for a client that accepts it.
- `/healthz`: 200 while the exporter collects; 503 when a collecting task has ended. For liveness.
- `/readyz`: 200. An exporter without Slurm is ready: `slurm_exporter_up` reports what is wrong.

Each source of data (nodes, jobs, partitions, statistics, licenses, reservations) is read once per
interval, however many clients scrape. A source that takes long is read less often. A scrape never
waits for Slurm. Data that could not be read again in time is withdrawn, not repeated.

- `families`: the table of this product's metrics. `compatible`: the tables of the other name sets.
"""
