"""`slurm-explain` and `slurm-top` from their arguments to their exit status, with commands of Slurm
that a script replaces.
"""

import base64
import json
import os
import re
from pathlib import Path

import pytest

from sidecars.commandline import shell
from sidecars.contract.project import VERSION
from sidecars.explain import plugin, users
from tests.unit.explain.printed import output, pending_job, section
from tests.unit.explain.test_main import QUEUE

ROOT = Path(__file__).parents[3]
LOGIN = ROOT / "images" / "login"


class FakeSlurm:
    """Programs first on PATH: `sh`, whose output is that of Slurm's commands, and `squeue`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir()
        self.squeue("")
        self.prints(output())

    def prints(self, out: str, err: str = "") -> None:
        """What all of Slurm's commands print."""
        (self.folder / "out").write_text(out)
        (self.folder / "err").write_text(err)
        asked = f'printf "%s\\n" "$@" >{self.folder}/asked'
        self._program("sh", f"{asked}; cat {self.folder}/out; cat {self.folder}/err >&2")

    def squeue(self, text: str) -> None:
        """What squeue prints."""
        (self.folder / "jobs").write_text(text)
        self._program("squeue", f"cat {self.folder}/jobs")

    def asked(self) -> str:
        """The last parameter of the script."""
        return (self.folder / "asked").read_text().splitlines()[-1]

    def _program(self, name: str, script: str) -> None:
        file = self.folder / name
        file.write_text(f"#!/bin/bash\n{script}\n")
        file.chmod(0o755)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    found = FakeSlurm(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{found.folder}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "getuid", lambda: 2001)
    return found


def test_a_job_is_explained_to_its_user(
    slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    assert users.main(["1"], program="slurm-explain") == 0
    shown = capsys.readouterr().out
    assert "job 1: PENDING (JobHeldUser) in partition all" in shown
    assert "    $ scontrol release 1" in shown
    assert "kubectl" not in shown
    assert slurm.asked() == "1"


def test_a_job_that_slurm_hides_from_the_user_is_one_that_it_does_not_have(
    slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm.prints(output(job=None) + section("job", "", 1), "\x1ejob\nInvalid job id specified\n")
    assert users.main(["99"], program="slurm-explain") == 1
    assert "not in the queue" in capsys.readouterr().out


def test_without_an_id_all_pending_jobs_are_explained_by_this_program(
    slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm.prints(output(queue=QUEUE))
    assert users.main([], program="slurm-explain") == 0
    shown = capsys.readouterr().out
    assert "pending jobs: 3, of which 1 need a remedy" in shown
    assert "    $ slurm-explain 9" in shown


def test_the_program_shows_the_cluster_by_its_other_name(
    slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm.prints(output(queue=QUEUE))
    assert users.main(["--json"], program="/usr/local/bin/slurm-top") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["pending"] == {"Resources": 2, "JobHeldUser": 1}
    assert shown["nodesets"] is None


def test_a_remedy_of_an_administrator_is_named_as_one(
    slurm: FakeSlurm, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = json.loads(re.search(r"\x1enodes\n(.*?)\n\x1e", output(), re.DOTALL)[1])  # type: ignore[index]
    for it in nodes["nodes"]:
        it |= {"state": ["IDLE", "DRAIN"], "reason": "bad disk", "reason_set_by_user": "root"}
    waiting = {"jobs": [pending_job(state_reason="Resources")], "errors": []}
    slurm.prints(output(nodes=nodes, job=waiting))
    users.main(["1"], program="slurm-explain")
    shown = capsys.readouterr().out
    assert "bad disk" in shown
    assert "An administrator can do that." in shown
    assert "scontrol update nodename" not in shown
    monkeypatch.setattr(os, "getuid", lambda: 0)
    users.main(["1"], program="slurm-explain")
    assert "scontrol update nodename" in capsys.readouterr().out


def test_a_slurm_that_does_not_answer_is_named_and_ends_the_program(
    slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm.prints("\x1eping\nSlurmctld(primary) at a is DOWN\n\x1e= 0\n")
    assert users.main(["1"], program="slurm-explain") == 1
    assert "slurmctld does not answer" in capsys.readouterr().out


def token(**claims: object) -> str:
    """A JSON Web Token with these claims."""
    parts = (json.dumps(it).encode() for it in ({"alg": "HS256"}, claims))
    return ".".join((*(base64.urlsafe_b64encode(it).decode().rstrip("=") for it in parts), "sig"))


@pytest.mark.parametrize(
    ("program", "words"), [("slurm-explain", ["1"]), ("slurm-explain", []), ("slurm-top", [])]
)
def test_an_expired_token_is_named_in_place_of_a_slurmctld_that_is_down(
    slurm: FakeSlurm,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    program: str,
    words: list[str],
) -> None:
    given = token(exp=1_700_000_000, sun="ada")
    monkeypatch.setenv("SLURM_JWT", given)
    users.main(words, program=program)
    shown = capsys.readouterr().out
    assert "the token in the environment variable SLURM_JWT has expired" in shown
    assert "Run: unset SLURM_JWT" in shown
    assert "slurmctld" not in shown
    assert not set(given.split(".")) & set(re.findall(r"[\w-]+", shown))
    assert not (slurm.folder / "asked").exists(), "nothing is asked"


def test_a_job_is_unknown_while_the_token_has_expired(
    slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JWT", token(exp=1))
    assert users.main(["1"], program="slurm-explain") == 1


@pytest.mark.parametrize(
    "given",
    [token(exp=4_000_000_000), token(sun="ada"), token(exp="1"), "a.b.c", "a", "..", "\x1b[2J"],
)
def test_slurm_judges_a_token_that_has_not_expired_or_is_none(
    slurm: FakeSlurm,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    given: str,
) -> None:
    monkeypatch.setenv("SLURM_JWT", given)
    assert users.main(["1"], program="slurm-explain") == 0
    slurm.prints("\x1eping\nSlurmctld(primary) at a is DOWN\n\x1e= 0\n")
    assert users.main(["1"], program="slurm-explain") == 1
    shown = capsys.readouterr().out
    assert "If others get an answer, Slurm refuses your token. Run: unset SLURM_JWT" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize("given", ["1;touch x", "$(touch x)", "-1", "a"])
def test_a_word_that_is_no_id_runs_nothing(
    slurm: FakeSlurm, capsys: pytest.CaptureFixture[str], given: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        users.main(["--", given], program="slurm-explain")
    assert caught.value.code == 2
    assert not (slurm.folder / "asked").exists()


def test_what_users_have_chosen_controls_no_terminal(
    slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm.prints(output(queue="PD|900|5|b\x1b]0;title\x07b|Resources|N/A||all\n"))
    users.main([], program="slurm-explain")
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\x07" not in shown


def test_completion_offers_the_jobs_of_the_user_and_nothing_else(
    slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm.squeue("17\n12_3\n12_[4-9]\n$(touch x)\n")
    assert users.main(["__complete", ""], program="slurm-explain") == 0
    assert capsys.readouterr().out.split() == ["12_3", "17"]
    assert users.main(["__complete", "--w"], program="slurm-top") == 0
    assert capsys.readouterr().out.split() == ["--watch"]


@pytest.mark.parametrize("name", ["slurm-explain", "slurm-top"])
def test_the_version_and_the_help_are_printed(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        users.main(["--version"], program=name)
    assert (caught.value.code, capsys.readouterr().out) == (0, f"{name} {VERSION}\n")
    with pytest.raises(SystemExit) as caught:
        users.main(["--help"], program=name)
    assert caught.value.code == 0
    assert "Changes nothing." in capsys.readouterr().out


@pytest.mark.parametrize("name", ["slurm-explain", "slurm-top"])
def test_the_image_has_the_completion_of_the_shell(name: str) -> None:
    file = LOGIN / "rootfs/usr/share/bash-completion/completions" / name
    assert file.read_text() == shell(name, "bash")


def test_the_image_has_all_modules_that_the_programs_import() -> None:
    text = (LOGIN / "Containerfile").read_text()
    copied = set(
        re.findall(r"^COPY sidecars/([\w.]+) /usr/local/lib/slurm-explain/", text, re.MULTILINE)
    )
    needed = {
        parts[1] if (ROOT / "sidecars" / parts[1]).is_dir() else f"{parts[1]}.py"
        for it in plugin.modules("sidecars.explain.users")
        if len(parts := it.split(".")) > 1
    }
    assert copied == needed | {"__init__.py"}
