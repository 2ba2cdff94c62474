"""Kubeconfigs for tests, and a clock for the credentials that they give."""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from pathlib import Path

    from sidecars.kube import Credentials

START = datetime(2026, 1, 1, tzinfo=UTC)


SECRET = "hush-hush"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def wall(self) -> datetime:
        return START + timedelta(seconds=self.now)

    def give(self, credentials: Credentials) -> Credentials:
        credentials.clock, credentials.wall_clock = self, self.wall
        return credentials


def kubeconfig(user: dict[str, Any], name: str = "c", **cluster: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": "http://127.0.0.1:1/"} | cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": name, "namespace": "slurm"}}
        ],
    }


def write(folder: Path, content: Any, name: str = "kubeconfig") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def token(credentials: Credentials) -> str | None:
    return asyncio.run(credentials.access()).authorization


B64 = base64.b64encode(b"no PEM").decode()
