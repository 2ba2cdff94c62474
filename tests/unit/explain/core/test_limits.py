"""The values of limits in what `scontrol -o show assoc_mgr` prints (26.05.5, shortened)."""

import pytest

from sidecars.explain.core.limits import Value, values
from sidecars.slurm.job_reasons import words

QOS = frozenset({"normal"})
TEXT = (
    "Current Association Manager state\n"
    "Association Records\n"
    "ClusterName=slurm Account=root UserName= Partition= Priority=0 ID=1 "
    "SharesRaw/Norm/Level/Factor=1/1/1/0 ParentAccount= Lineage=/ DefAssoc=No GrpJobs=50(10) "
    "GrpTRES=cpu=N(300) MaxJobs= Comment=\n"
    "ClusterName=slurm Account=science UserName= Partition= Priority=0 ID=3 "
    "SharesRaw/Norm/Level/Factor=1/1/1/0 ParentAccount=root(1) Lineage=/science/ DefAssoc=No "
    "GrpJobs=N(8) GrpTRES=cpu=200(200),mem=5000(4000) MaxJobs=1 Comment=\n"
    "ClusterName=slurm Account=chemistry UserName= Partition= Priority=0 ID=4 "
    "ParentAccount=science(3) Lineage=/science/chemistry/ GrpJobs=1(1) GrpTRES=cpu=9(9) MaxJobs= "
    "Comment=\n"
    "ClusterName=slurm Account=physics UserName= Partition= Priority=0 ID=5 "
    "SharesRaw/Norm/Level/Factor=1/0.5/1/0 ParentAccount=science(3) Lineage=/science/physics/ "
    "DefAssoc=No GrpJobs=4(4) GrpJobsAccrue=N(0) GrpSubmitJobs=N(6) GrpWall=N(1.50) "
    "GrpTRES=cpu=100(96),mem=N(1000),gres/gpu=8(8) GrpTRESMins=cpu=N(7) GrpTRESRunMins=cpu=N(0) "
    "MaxJobs= MaxJobsAccrue= MaxSubmitJobs= MaxWallPJ= MaxTRESPJ= MaxTRESPN= MaxTRESMinsPJ= "
    "MinPrioThresh= Comment=\n"
    "ClusterName=slurm Account=physics UserName=ada(1000) Partition= ID=6 ParentAccount= "
    "GrpJobs=N(2) GrpTRES=cpu=N(96) MaxJobs=2(2) MaxWallPJ=60 MaxTRESPJ=cpu=16,node=2 MaxTRESPN= "
    "Comment=\n"
    "ClusterName=slurm Account=physics UserName=bob(1001) Partition= Priority=0 ID=7 "
    "MaxJobs=1(1) Comment=\n"
    "QOS Records\n"
    "QOS=normal(1) UsageRaw=0.000000 GrpJobs=N(2) GrpTRES=cpu=64(64) MaxWallPJ= MaxTRESPJ= "
    "MinTRESPJ=cpu=2 Account Limits= physics={MaxJobsPA=N(2) MaxJobsAccruePA=N(0) "
    "MaxSubmitJobsPA=N(3) MaxTRESPA=cpu=32(32),mem=N(5) MaxTRESRunMinsPA=cpu=N(0)} User Limits= "
    "ada(1000)={MaxJobsPU=3(3) MaxTRESPU=cpu=N(3),gres/gpu=1(1) MaxTRESRunMinsPU=cpu=10(9)} "
    "bob(1001)={MaxJobsPU=3(1) MaxTRESPU=cpu=N(3),gres/gpu=1(0)}\n"
    "QOS=other(2) GrpTRES=cpu=1(1)\n"
)


def found(reason: str) -> list[Value]:
    limit = words(reason).limit
    assert limit is not None
    return list(values(TEXT, limit, "ada", "physics", QOS))


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (
            "AssocGrpCpuLimit",
            [
                Value("account physics", "GrpTRES=cpu", 100, 96.0),
                Value("account science, above physics", "GrpTRES=cpu", 200, 200.0),
            ],
        ),
        ("AssocGrpGRES", [Value("account physics", "GrpTRES=gres/gpu", 8, 8.0)]),
        (
            "AssocGrpMemLimit",
            [Value("account science, above physics", "GrpTRES=mem", 5000, 4000.0)],
        ),
        (
            "AssocGrpJobsLimit",
            [
                Value("account physics", "GrpJobs", 4, 4.0),
                Value("account root, above physics", "GrpJobs", 50, 10.0),
            ],
        ),
        ("AssocMaxJobsLimit", [Value("user ada in account physics", "MaxJobs", 2, 2.0)]),
        (
            "AssocMaxWallDurationPerJobLimit",
            [Value("user ada in account physics", "MaxWallPJ", 60, None)],
        ),
        (
            "AssocMaxNodePerJobLimit",
            [Value("user ada in account physics", "MaxTRESPJ=node", 2, None)],
        ),
        ("QOSGrpCpuLimit", [Value("QOS normal", "GrpTRES=cpu", 64, 64.0)]),
        ("QOSMinCpuNotSatisfied", [Value("QOS normal", "MinTRESPJ=cpu", 2, None)]),
        ("QOSMaxJobsPerUserLimit", [Value("QOS normal, user ada", "MaxJobsPU", 3, 3.0)]),
        ("QOSMaxGRESPerUser", [Value("QOS normal, user ada", "MaxTRESPU=gres/gpu", 1, 1.0)]),
        ("MaxCpuRunMinsPerUser", [Value("QOS normal, user ada", "MaxTRESRunMinsPU=cpu", 10, 9.0)]),
        ("MaxCpuPerAccount", [Value("QOS normal, account physics", "MaxTRESPA=cpu", 32, 32.0)]),
    ],
)
def test_the_limit_of_a_reason_has_its_value_and_use(reason: str, expected: list[Value]) -> None:
    assert found(reason) == expected


def test_a_value_reads_as_a_sentence_part() -> None:
    assert (
        str(Value("QOS normal", "GrpTRES=cpu", 64, 64.0)) == "QOS normal: GrpTRES=cpu=64, 64 in use"
    )
    assert str(Value("account a", "MaxWallPJ", 60, None)) == "account a: MaxWallPJ=60 minutes"


def test_other_text_has_no_values() -> None:
    limit = words("QOSGrpCpuLimit").limit
    assert limit is not None
    assert values("No QOS currently cached in Slurm.\n\x00=\n", limit, "ada", "physics", QOS) == ()


def test_accounts_that_are_above_each_other_end_the_search() -> None:
    text = "".join(
        f"ClusterName=c Account={name} UserName= Partition= ParentAccount={parent}(1) "
        "GrpJobs=1(1)\n"
        for name, parent in (("physics", "science"), ("science", "physics"))
    )
    limit = words("AssocGrpJobsLimit").limit
    assert limit is not None
    assert [it.holder for it in values(text, limit, "ada", "physics", QOS)] == [
        "account physics",
        "account science, above physics",
    ]
