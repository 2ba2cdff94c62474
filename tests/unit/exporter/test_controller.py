"""Samples of slurmctld's statistics, partitions, licenses and reservations."""

import json
from pathlib import Path

import pytest

from sidecars.exporter import controller
from sidecars.exporter.controller import FIELDS, add_statistics
from sidecars.exporter.families import OWN
from sidecars.exporter.metrics import Family
from sidecars.slurm import protocol
from sidecars.slurm.protocol import VERSIONS
from sidecars.slurm.records import Partition, Reservation
from sidecars.slurm.usage import License, ReservationUsage, RpcCount, Statistics
from tests.unit.exporter.exposition import everything, values

FIXTURES = Path(__file__).parents[1] / "slurm" / "fixtures"


def recorded(version: str) -> Statistics:
    body = json.loads((FIXTURES / f"{version}-diag.json").read_text())["body"]
    return protocol.decode(protocol.get_statistics(), 200, json.dumps(body).encode())


def test_recorded_statistics_of_slurm_become_seconds_and_counts() -> None:
    samples = everything()
    add_statistics(samples, recorded("v0.0.45"))
    found = values(samples)
    # From the record: 3 cycles, 2620 µs in all, the last 240 µs, the longest 1263 µs; 3 ends at the
    # end of the queue.
    assert found["slurm_schedule_cycles_total"] == {(): 3}
    assert found["slurm_schedule_cycle_seconds_total"][()] == pytest.approx(0.00262)
    assert found["slurm_schedule_cycle_last_seconds"][()] == pytest.approx(0.00024)
    assert found["slurm_schedule_cycle_max_seconds"][()] == pytest.approx(0.001263)
    assert found["slurm_schedule_exits_total"]["end_job_queue",] == 3
    assert found["slurm_schedule_exits_total"]["licenses",] == 0
    assert found["slurm_controller_jobs_submitted_total"] == {(): 3}
    assert found["slurm_controller_statistics_start_timestamp_seconds"] == {(): 1795256036}
    # The same in microseconds under the other names.
    assert found["slurm_scheduler_cycle_last_seconds"] == {(): 240}
    assert found["slurm_scheduler_last_cycle"] == {(): 240}
    assert found["slurm_scheduler_endjobqueue_total"] == {(): 3}
    assert found["slurm_scheduler_jobs_stats_timestamp"] == {(): 1795256066}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_field_that_slurm_does_not_report_has_no_sample(version: str) -> None:
    samples = everything()
    add_statistics(samples, recorded(version))
    found = values(samples)
    assert "slurm_backfill_cycles_total" not in found
    assert "slurm_bfscheduler_cycle_total" not in found
    assert "slurm_controller_server_threads" in found


def test_backfill_is_reported_with_its_exits() -> None:
    statistics = Statistics(
        {
            "bf_active": 1,
            "bf_cycle_last": 2_000_000,
            "bf_when_last_cycle": 0,
            "bf_exit.bf_max_time": 4,
        }
    )
    samples = everything()
    add_statistics(samples, statistics)
    found = values(samples)
    assert found["slurm_backfill_active"] == {(): 1}
    assert found["slurm_backfill_cycle_last_seconds"] == {(): 2}
    assert found["slurm_backfill_exits_total"] == {("max_time",): 4}
    assert found["slurm_bfscheduler_maxtime_total"] == {(): 4}
    assert "slurm_backfill_last_cycle_timestamp_seconds" not in found


def test_requests_are_counted_by_type_and_user_with_true_seconds() -> None:
    body = {
        "statistics": {
            "rpcs_by_message_type": [
                {
                    "type_id": 2003,
                    "message_type": "REQUEST_JOB_INFO",
                    "count": 7,
                    "total_time": 1_500_000,
                    "dropped": 2,
                },
                {"type_id": 9999, "message_type": "", "count": 1, "total_time": 10},
            ],
            "rpcs_by_user": [{"user_id": 1001, "user": "anna", "count": 5, "total_time": 250_000}],
            "pending_rpcs": [{"type_id": 1008, "message_type": "REQUEST_PING", "count": 3}],
        }
    }
    samples = everything()
    add_statistics(
        samples, protocol.decode(protocol.get_statistics(), 200, json.dumps(body).encode())
    )
    found = values(samples)
    assert found["slurm_controller_rpcs_total"] == {("REQUEST_JOB_INFO",): 7, ("9999",): 1}
    assert found["slurm_controller_rpc_seconds_total"]["REQUEST_JOB_INFO",] == pytest.approx(1.5)
    assert found["slurm_controller_rpcs_dropped_total"] == {("REQUEST_JOB_INFO",): 2}
    assert found["slurm_controller_user_rpcs_total"] == {("anna",): 5}
    assert found["slurm_controller_user_rpc_seconds_total"]["anna",] == pytest.approx(0.25)
    assert found["slurm_controller_agent_rpcs_pending"] == {("REQUEST_PING",): 3}


def test_each_metric_of_the_scheduler_has_a_field() -> None:
    scheduler = {metric for metric in OWN if metric.family is Family.SCHEDULER}
    assert {metric.name for metric in scheduler - FIELDS.keys()} == {
        "slurm_schedule_exits_total",
        "slurm_backfill_exits_total",
    }


def test_partitions_licenses_and_reservations() -> None:
    samples = everything()
    controller.add_partitions(
        samples, [Partition("a", frozenset({"UP"})), Partition("b", frozenset({"DRAIN"}))]
    )
    controller.add_licenses(samples, [License("matlab@host", 10, 4, 5, 1)])
    maintenance = Reservation("maint", flags=frozenset({"MAINT"}), start_time=100, end_time=200)
    controller.add_reservations(samples, [ReservationUsage(maintenance, 2, 4)], now=150.0)
    found = values(samples)
    assert found["slurm_partition_up"] == {("a",): 1, ("b",): 0}
    assert found["slurm_licenses_configured"] == {("matlab@host",): 10}
    assert found["slurm_licenses_used"] == {("matlab@host",): 4}
    assert found["slurm_licenses_free"] == {("matlab@host",): 5}
    assert found["slurm_licenses_reserved"] == {("matlab@host",): 1}
    assert found["slurm_reservation_active"] == {("maint",): 1}
    assert found["slurm_reservation_end_timestamp_seconds"] == {("maint",): 200}
    assert found["slurm_reservation_nodes"] == {("maint",): 2}
    assert found["slurm_reservation_flag"] == {("maint", "maint"): 1}
    ended = everything()
    controller.add_reservations(ended, [ReservationUsage(maintenance)], now=200.0)
    assert values(ended)["slurm_reservation_active"] == {("maint",): 0}


def test_the_statistics_of_a_request_that_was_never_counted_are_zero() -> None:
    samples = everything()
    add_statistics(samples, Statistics({}, rpcs_by_type=(RpcCount("REQUEST_PING", 0),)))
    assert values(samples)["slurm_controller_rpcs_total"] == {("REQUEST_PING",): 0}
