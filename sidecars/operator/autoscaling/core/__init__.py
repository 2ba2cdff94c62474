"""What only the operator decides of autoscaling. Pure.

- `closed`: NodeSets whose workers have not registered.
- `counted`: the condition of the Controller.
"""
