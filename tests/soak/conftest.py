"""The local cluster of the end-to-end tests, with nothing of ours on it."""

from tests.e2e.conftest import cluster_name as cluster_name
from tests.e2e.conftest import kubernetes as kubernetes
from tests.e2e.conftest import pytest_addoption as pytest_addoption
from tests.e2e.conftest import pytest_runtest_makereport as pytest_runtest_makereport
