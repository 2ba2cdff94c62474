"""`slurm-explain` and `slurm-top` of the image of login nodes, as users without rights, with real
daemons of Slurm and accounting.
"""

import re
from collections.abc import Iterator

import pytest

from tests.support import documented_rules
from tests.support.real import as_processes, ports, rendered
from tests.support.real.as_processes import Daemons
from tests.support.real.harness import VALUES, CommandError, until

pytestmark = pytest.mark.timeout(400)

USER, NUMBER = "ada", 2001
OTHER = 2002
"""A user who has no account, and no jobs."""
MORE = {
    "controller": {"extraConfMap": {"PrivateData": "jobs"}},
    "accounting": {"enabled": True, "mariadb": {"enabled": True}},
    "nodesets": {"slinky": {"oversubscribeNode": True}},
}


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """Two workers, slurmdbd, and a user with a home folder that all share; job 1 has ended."""
    home = tmp_path_factory.mktemp("home")
    home.chmod(0o777)
    release = rendered.release("login-programs", ports.LOGIN_PROGRAMS, [VALUES], MORE)
    add = f"useradd --no-create-home --uid={NUMBER} --home-dir=/home/{USER} {USER}"
    folder = tmp_path_factory.mktemp("login-programs")
    with as_processes.running(
        folder, release, prepare=add, folders={f"/home/{USER}": home}
    ) as found:
        found.login("mkdir", "-p", f"/home/{USER}")
        found.login("chown", str(NUMBER), f"/home/{USER}")
        assert as_user(found, "sbatch", "--parsable", "--output=/dev/null", "--wrap=true") == "1\n"
        until("job 1 to end", lambda: found.job(1)["JobState"] == "COMPLETED")
        yield found


def as_user(slurm: Daemons, *words: str, stdin: str | None = None) -> str:
    """Run a command on the login node as the user, in the home folder."""
    become = ("setpriv", f"--reuid={NUMBER}", f"--regid={NUMBER}", "--clear-groups")
    home = ("env", f"--chdir=/home/{USER}", f"HOME=/home/{USER}", f"USER={USER}")
    return slurm.login(*become, *home, *words, stdin=stdin)


def answer(slurm: Daemons, number: int, *, uid: int, program: str = "slurm-explain") -> str:
    """What the program of the image prints for this user."""
    become = ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups")
    return slurm.login(*become, program, *([str(number)] if program == "slurm-explain" else []))


def test_a_user_gets_the_answer_of_root_about_an_own_job(slurm: Daemons) -> None:
    number = int(as_user(slurm, "sbatch", "--parsable", "--hold", "--wrap=true"))
    own = answer(slurm, number, uid=NUMBER)
    assert f"job {number}: PENDING (JobHeldUser)" in own
    assert f"$ scontrol release {number}" in own
    assert own == answer(slurm, number, uid=0)
    slurm.login("scancel", str(number))


def test_a_job_of_another_user_is_none_where_private_data_hides_it(slurm: Daemons) -> None:
    number = int(as_user(slurm, "sbatch", "--parsable", "--hold", "--wrap=true"))
    try:
        with pytest.raises(CommandError, match=r"rc 1\njob \d+: not in the queue"):
            answer(slurm, number, uid=OTHER)
    finally:
        slurm.login("scancel", str(number))


def test_all_pending_jobs_and_the_cluster_are_shown_to_a_user(slurm: Daemons) -> None:
    name = "x\x1b]0;title\x07"
    named = (f"--job-name={name}", "--wrap=id")
    number = int(as_user(slurm, "sbatch", "--parsable", "--hold", *named))
    shown = as_user(slurm, "slurm-explain")
    assert f"{number} of {USER}" in shown
    assert str(number) in as_user(slurm, "squeue", "--me", "--noheader").split()
    assert "\x1b" not in shown
    assert "nodes     2" in answer(slurm, 0, uid=NUMBER, program="slurm-top")
    offered = as_user(slurm, "slurm-explain", "__complete", "")
    assert str(number) in offered.split()
    slurm.login("scancel", str(number))


@pytest.mark.parametrize("program", sorted(documented_rules.SLURM.keys() - {"slurmd", "sackd"}))
def test_the_options_of_documented_commands_are_those_of_the_real_programs(
    slurm: Daemons, program: str
) -> None:
    found = re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", slurm.login(program, "--help"))
    listed = {it.rstrip("=") for it in documented_rules.SLURM[program].split()}
    # sbatch and squeue take them, and don't list them.
    assert listed - {"--external", "--me"} <= set(found)
