"""The source of the custom resource definitions and of the charts' values schemas, and the
generator.

A field of a custom resource is described once, in `crds/KIND.yaml`, as OpenAPI. From there it gets:

- into the CRD and docs/reference/crds.md (`definitions`);
- into the Python record, `sidecars/workloads/resources/specs.py` (`records`);
- into the values of the chart `slurm`, where `values/shapes/slurm.yaml` includes the fields of the
  kind with `fields: KIND`: the rules that the chart checks, the comments of values.yaml, the
  descriptions for editors and docs/reference/values-slurm.md (`resource_fields`, `chart_values`);
- through the chart into the resource: `slurm.passed` has the names of the fields that values have.

What only one of these places needs stands with the field: `x-values` for values, `x-record` for the
record. `values/shapes/slurm.yaml` describes what only values have, such as `podSpec`. A new field
needs its description and the code that uses it; a template changes only for a new object that the
chart doesn't pass on as it is. `make charts` fails for a field that values have and no rendered
resource has.
"""
