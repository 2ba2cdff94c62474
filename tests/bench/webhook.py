"""`python -m tests.bench.webhook [COUNT]`: the bridge's webhook under idle connections, 5,000 by
default.

Prints its memory, the connections that it keeps, and how long a question waits for its answer,
before and meanwhile.
"""

import argparse
import asyncio
import http.client
import resource
import ssl
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from sidecars import generated
from tests.cluster.control_plane import free_ports
from tests.support.flood import flood, resident
from tests.unit.bridge.core.test_admission import review

SECONDS = 10.0


def ask(port: int) -> float:
    """Seconds until an answer by a connection of its own. Raises OSError without one."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    began = time.monotonic()
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=SECONDS)
    try:
        connection.request("POST", "/gate", review({}))
        if connection.getresponse().status != http.HTTPStatus.OK:
            raise OSError("the question was refused")
    finally:
        connection.close()
    return time.monotonic() - began


def measure(port: int, pid: int, count: int) -> str:
    """What it costs."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            before = ask(port)
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    memory = resident(pid)
    with flood(port) as attack:
        attack.grow(count)
        answer = ask(port)
        return (
            f"{count} idle connections: {resident(pid) / 2**20:.0f} MiB (before: "
            f"{memory / 2**20:.0f}), {attack.alive()} kept, an answer after {answer * 1000:.1f} "
            f"ms (before: {before * 1000:.1f})"
        )


def main() -> int:
    """The role as a process, on loopback."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.webhook")
    parser.add_argument("count", nargs="?", type=int, default=5000)
    count: int = parser.parse_args().count
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, count + 1000), most))
    with TemporaryDirectory() as folder:
        certificate, key = asyncio.run(generated.certificate("webhook", 2))
        for name, text in (("tls.crt", certificate), ("tls.key", key)):
            (Path(folder) / name).write_text(text)
        [port] = free_ports(1)
        command = [
            sys.executable,
            "-m",
            "sidecars",
            "webhook",
            f"--certificate={folder}",
            f"--port={port}",
        ]
        with subprocess.Popen(command) as process:
            try:
                print(measure(port, process.pid, count))
            finally:
                process.terminate()
    return 0


if __name__ == "__main__":
    sys.exit(main())
