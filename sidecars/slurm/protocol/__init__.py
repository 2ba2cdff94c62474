"""Slurm's REST API as values: requests that a carrier sends, and answers decoded from HTTP status
and body.

No I/O, no clock, no token. `sidecars.slurm.client` (aiohttp) and `sidecars.slurm.rest` (standard
library) are the carriers. One module per subject has the requests and decodes their records;
`fields` reads JSON, `decoding` distinguishes answers from errors.

How slurmrestd answers (observed with Slurm 26.05, https://slurm.schedmd.com/rest_api.html):
- Nothing new: HTTP 304 for nodes; for jobs HTTP 200 with an empty list and a `last_update` of 0.
- Anything new: all records, not only the changed ones.
- `last_update` is the time of the answer. To see a later change within the same second, ask from
  one second earlier.
- An unknown node: HTTP 200 without a list and with error number 0 when read; 422 with number 2018
  when written or deleted.
- An unknown reservation: the same when read; 422 with number 2053 when deleted.
- A hostlist with one unknown node: 422 with number 2018. All other nodes are changed, unless the
  unknown one is first in order; then none is.
- A refused token: 511 with number 1007 (500 in older releases). No token: 401 as plain text.
  `ping/` answers 200 in both cases.
- slurmctld is down: 502 with number 1800 after 10 seconds. slurmdbd is down: 502 with number 7000
  at once.
"""

from sidecars.slurm.protocol.checks import (
    get_check_job,
    get_waiting_ids,
    get_waiting_job,
    submit_check,
)
from sidecars.slurm.protocol.decoding import decode
from sidecars.slurm.protocol.external import (
    allow_nodes,
    cancel_job,
    get_external_job,
    get_job_states,
    set_priority,
    start_again,
    start_external,
    submit_external,
)
from sidecars.slurm.protocol.fields import Fields
from sidecars.slurm.protocol.jobs import JOBS, get_jobs, start_now
from sidecars.slurm.protocol.nodes import (
    ONE_NODES_FAULT,
    count_allocations,
    create_nodes,
    delete_node,
    get_node,
    get_nodes,
    lines_of_nodes,
    update_nodes,
)
from sidecars.slurm.protocol.partitions import get_partitions
from sidecars.slurm.protocol.queue import get_queue
from sidecars.slurm.protocol.request import (
    STATUS_NO_SUCH_ENDPOINT,
    TOKEN_HEADER,
    USER_HEADER,
    VERSIONS,
    Request,
    Streamed,
    versions_to_try,
)
from sidecars.slurm.protocol.reservations import (
    UNLIMITED,
    close_nodes,
    delete_reservation,
    get_reservations,
    save_reservation,
)
from sidecars.slurm.protocol.slurmctld import (
    RECONFIGURE_SECONDS,
    ping,
    reconfigure,
    select_type_parameters,
    slurmctld_start,
)
from sidecars.slurm.protocol.stored import get_stored_job
from sidecars.slurm.protocol.usage import (
    get_job_usage,
    get_licenses,
    get_node_usage,
    get_reservation_usage,
    get_statistics,
)

__all__ = [
    "JOBS",
    "ONE_NODES_FAULT",
    "RECONFIGURE_SECONDS",
    "STATUS_NO_SUCH_ENDPOINT",
    "TOKEN_HEADER",
    "UNLIMITED",
    "USER_HEADER",
    "VERSIONS",
    "Fields",
    "Request",
    "Streamed",
    "allow_nodes",
    "cancel_job",
    "close_nodes",
    "count_allocations",
    "create_nodes",
    "decode",
    "delete_node",
    "delete_reservation",
    "get_check_job",
    "get_external_job",
    "get_job_states",
    "get_job_usage",
    "get_jobs",
    "get_licenses",
    "get_node",
    "get_node_usage",
    "get_nodes",
    "get_partitions",
    "get_queue",
    "get_reservation_usage",
    "get_reservations",
    "get_statistics",
    "get_stored_job",
    "get_waiting_ids",
    "get_waiting_job",
    "lines_of_nodes",
    "ping",
    "reconfigure",
    "save_reservation",
    "select_type_parameters",
    "set_priority",
    "slurmctld_start",
    "start_again",
    "start_external",
    "start_now",
    "submit_check",
    "submit_external",
    "update_nodes",
    "versions_to_try",
]
