"""That the commands of the documentation are right: bash reads each block, and each command has
options that its program has.

tests/integration/test_documented_commands.py runs those of kubectl and Helm.
"""

import re
from pathlib import Path

import pytest

from tests.support import documented, documented_rules
from tests.support.documented import Block, ScriptError

ROOT = Path(__file__).parents[2]
BLOCKS = documented.of_folder(ROOT)
VARIABLES = {
    "SLURM_JWT": "token",
    "SLURMRESTD": "http://slurm-restapi.slurm:6820",
    "SLURM_JOB_ID": "1",
    "SLURM_JOB_NODELIST": "gpu-0",
    "SLURM_JOB_NUM_NODES": "2",
}
"""Those that a login node or a job has."""
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
CLUSTER = "".join(it.read_text(encoding="utf-8") for it in (ROOT / "tests/cluster").glob("*.py"))
READ = ("images.txt", "statesave.tar")
"""Files that a block reads and another one, or a release, writes."""


def wrong(block: Block, folder: Path) -> list[str]:
    """What is wrong with the commands of a block."""
    for name in READ:
        (folder / name).write_text("registry.invalid/slurm-charts/slurmd:26.05\n")
    found = [
        *documented.commands(block, folder, VARIABLES),
        *documented.directives(block),
    ]
    assert found, "no command"
    if documented_rules.why_marked(block):
        return []
    return [it for words in found if (it := documented_rules.of_job(block, words))]


def unread(block: Block) -> list[str]:
    """The variables before `make` that neither the Makefile nor what it starts reads."""
    lines = re.findall(r"^((?:[A-Z0-9_]+=\S+ )+)make ", block.script, re.MULTILINE)
    given = [name for line in lines for name in re.findall(r"([A-Z0-9_]+)=", line)]
    return [it for it in given if f"$({it})" not in MAKEFILE and f'"{it}"' not in CLUSTER]


def of(text: str, page: str = "docs/page.md") -> Block:
    (block,) = documented.blocks(page, f"Text.\n\n{text}")
    return block


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.place)
def test_each_command_of_a_block_has_options_that_its_program_has(
    block: Block, tmp_path: Path
) -> None:
    assert wrong(block, tmp_path) == []
    assert unread(block) == []


def test_a_variable_of_make_that_nothing_reads_is_found() -> None:
    block = of("```sh\nREGISTRY=a VALUE=b CGROUP2=1 make up\n```\n")
    assert unread(block) == ["VALUE"]


def test_most_blocks_are_run_and_few_are_marked_as_not_run() -> None:
    marked = [block for block in BLOCKS if documented_rules.why_marked(block)]
    assert len(marked) == len(documented_rules.MARKED), "a mark of no block, or of several"
    assert len(marked) <= 25
    assert len([it for it in BLOCKS if it not in marked and documented_rules.runs(it)]) >= 60


@pytest.mark.parametrize(
    "command",
    [
        "srun --gpu=1 true",
        "sbatch --gpus-per-nodes=8 job.sh",
        "sinfo -Z",
        "scontrol udpate jobid=17 nodelist=slinky-0",
        "sacctmgr -i add account physics --parent",
        "make upp",
        "kubectl slurm explain jobs 8",
        "kubectl wait controllers.slinky.slurm.net/slurm --for=condition=UserApplied",
        """kubectl get nodesets -o jsonpath='{.status.conditions[?(@.type=="Autoscale")]}'""",
        "kubectl-slurm tops",
        "slurm-postrender check --nmaespace slurm",
        "slurm-postrender preview --release",
        "slurm-sidecars opertor",
        "slurm-sidecars simulate --nods 4",
        "slurm-sidecars operator --slurmrestd http://127.0.0.1:6820 --typo …",
        "slurm-sidecars plugin now",
        "kubectl -n slinky exec deploy/slurm-operator -- slurm-sidecars doctor gress -n slurm",
        "kubectl -n slurm exec deploy/slurm-login-login -- srun --node=2 hostname",
        'curl --header "X-SLURM-USER-TOKEN: $SLURM_JWT" "$SLURMRESTD/slurm/v0.0.45/job/"',
        "curl --headers X http://127.0.0.1:6820/slurm/v0.0.45/jobs/",
        "curl --data '{x' \"$SLURMRESTD/slurm/v0.0.45/job/submit\"",
        "python -m tests.contracts http://HOST:6820",
        "srun srun --gpu=1 true",
        "sudo srun --gpu=1 true",
        "kubctl get pods",
    ],
)
def test_a_typo_in_a_program_a_command_an_option_or_a_path_is_found(
    command: str, tmp_path: Path
) -> None:
    assert len(wrong(of(f"```console\n{command}\n```\n"), tmp_path)) == 1


@pytest.mark.parametrize(
    "command",
    ["echo 'open", "echo $UNSET", "for it in a b; echo $it; done", "cat < missing.yaml"],
    ids=["quote", "variable", "loop", "file"],
)
def test_a_block_that_bash_can_not_run_is_found(command: str, tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match=r"^docs/page\.md:3: "):
        wrong(of(f"```sh\n{command}\n```\n"), tmp_path)


def test_a_typo_in_a_directive_of_a_job_is_found(tmp_path: Path) -> None:
    block = of("```sh\n#!/bin/bash\n#SBATCH --nodes=2 --gpu=1\nsrun ./program\n```\n")
    assert wrong(block, tmp_path) == ["sbatch: no option '--gpu=1'"]


def test_only_lines_with_a_prompt_are_commands_if_the_first_one_has_it() -> None:
    text = "$ srun \\\n  hostname\ncpu-0\nalice@login:~$ ssh gpu-0\n# sinfo\n- cpu-0\n"
    assert of(f"```console\n{text}```\n").script == "srun \\\n  hostname\nssh gpu-0\nsinfo\n"


def test_loops_functions_pipes_and_substitutions_are_read_as_bash_runs_them(
    tmp_path: Path,
) -> None:
    block = of(
        "1. Do:\n\n   ```sh\n   list() { squeue --states=all; }\n"
        "   for it in a 'b c'; do srun \"$it\"; done\n"
        "   comm <(list | sort -u) <(sinfo -R)\n   x=$(make -s help)  # then\n   ```\n"
    )
    found = documented.commands(block, tmp_path)
    assert found[:2] == [["srun", "a"], ["srun", "b c"]]
    assert sorted(found[2:-2]) == [["sinfo", "-R"], ["sort", "-u"], ["squeue", "--states=all"]]
    assert found[-2][0] == "comm"
    assert found[-1] == ["make", "-s", "help"]
