"""The operator: wires the caches to a queue per kind, asks the policy, and carries its decisions out.

One folder per kind, each with `wiring` (which change wakes which resource), `predicates` (whether a change matters)
where it needs any, and `effects` (one pass over one resource).
"""
