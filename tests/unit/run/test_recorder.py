"""That pytest records what its tests take, alone and with workers, and that a pytest within a test
records nothing.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.run import times
from tests.run.recorder import PART
from tests.run.stages import ROOT

TESTS = """
import subprocess, sys, time
import pytest

BURN = "import time\\nwhile time.process_time() < 0.3: pass"

@pytest.fixture
def slow():
    yield
    subprocess.run([sys.executable, "-c", BURN], check=True)

def test_whose_fixture_uses_another_process(slow):
    pass

def test_that_waits():
    time.sleep(0.2)

def test_that_fails():
    assert not 1

@pytest.mark.skip
def test_that_is_left_out():
    pass

def test_that_starts_pytest(tmp_path):
    inner = tmp_path / "test_inner.py"
    inner.write_text("def test_within(): pass")
    subprocess.run([sys.executable, "-m", "pytest", "-q", str(inner)], check=True)
"""


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["alone", "workers"])
def test_wall_and_cpu_seconds_and_outcome_of_each_test_are_recorded(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    (tmp_path / "conftest.py").write_text(
        "from tests.run import recorder\n\ndef pytest_configure(config):\n    "
        "recorder.register(config)\n"
    )
    (tmp_path / "test_outer.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    part = tmp_path / "parts" / "outer.jsonl"
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, "."]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), PART: str(part)}
    subprocess.run(words, cwd=tmp_path, env=environment, check=False, capture_output=True)
    found = times.read(part)
    of_tests = {test.test.rpartition("::")[2]: test for test in found.tests}
    assert {name: test.outcome for name, test in of_tests.items()} == {
        "test_whose_fixture_uses_another_process": "passed",
        "test_that_waits": "passed",
        "test_that_fails": "failed",
        "test_that_is_left_out": "skipped",
        "test_that_starts_pytest": "passed",
    }
    assert of_tests["test_whose_fixture_uses_another_process"].cpu > 0.25
    assert of_tests["test_that_waits"].wall >= 0.2
    assert of_tests["test_that_waits"].cpu < 0.2
    assert found.session is not None
