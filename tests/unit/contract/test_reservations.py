"""The reservation that closes nodes: `sidecars.contract.reservations`."""

from sidecars.contract.reservations import closed_name, is_closing, names_of


def test_the_reservation_that_closes_nodes_claims_none() -> None:
    closing = closed_name("gpu")
    assert closing == "SlurmOperatorClosed-gpu"
    assert is_closing(closing)
    assert not is_closing("SlurmOperatorMaint-gpu")
    assert names_of(f"course,{closing},maint") == ("course", "maint")
    assert names_of(closing) == names_of("") == ()
