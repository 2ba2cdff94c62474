"""Declared checks."""

import json
import re
from typing import Any

import pytest

from sidecars.policy.checks.declared import Strategy, declared

LEAST: dict[str, Any] = {"name": "disk", "script": "#!/bin/sh\n"}


def test_a_check_needs_a_name_and_a_script_alone() -> None:
    found = declared(json.dumps(LEAST))
    assert (found.name, found.strategy, found.timeout, found.drain, found.undrain) == (
        "disk",
        Strategy.NODES,
        60,
        True,
        True,
    )


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ({"name": "Disk"}, "name is 'Disk'"),
        ({"script": "true"}, "begin it with a line such as #!/bin/sh"),
        ({"script": None}, "script is missing"),
        ({"script": "#!/bin/sh\n" + "x" * 70_000}, "65536 are allowed"),
        ({"strategy": "ring"}, "choose from nodes, pairs"),
        ({"timeoutSeconds": 0}, "timeoutSeconds is 0"),
        ({"timeoutSeconds": "60"}, "timeoutSeconds is '60'"),
        ({"timeoutSeconds": 60, "windowSeconds": 30}, "no test could end in time"),
        ({"strategy": "pairs", "maxNodes": 1}, "a pair has 2 nodes"),
        ({"limits": {"rate": {"min": "10"}}}, "limits.rate.min is '10' is no quantity"),
        ({"limits": {"rate": {"min": 10}}}, "give a number with a unit"),
        ({"limits": {"rate": {}}}, "give min, max or both"),
        ({"limits": {"Rate": {"min": "1s"}}}, "use a-z"),
        ({"env": {"PATH": "/"}}, "not PATH"),
        ({"env": {"COUNT": 3}}, "put it in quotes"),
        ({"features": "a"}, "features is no list"),
        ({"drain": "yes"}, "give true or false"),
        ({"scirpt": ""}, "scirpt: unknown key"),
    ],
)
def test_a_wrong_value_is_named_with_its_remedy(more: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=re.escape(fault)):
        declared(json.dumps({**LEAST, **more}))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "no JSON"),
        ("[]", "no object"),
        ('{"name": "a", "name": "b", "script": "#!/bin/sh"}', "name is given twice"),
        (
            '{"name": "a", "script": "#!/bin/sh", "limits": {"x": {"min": "1s"}, "x": {}}}',
            "x is given twice",
        ),
    ],
)
def test_a_text_that_is_no_check_is_refused(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        declared(text)
