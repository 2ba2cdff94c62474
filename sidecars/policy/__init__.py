"""What to do, decided from what is wanted, what is observed and the time: pure functions over typed
records.

No event loop, no client, no clock: the operator applies the decisions.
"""
