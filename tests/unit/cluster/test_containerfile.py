"""Reading Containerfiles: what is understood, and that all else is refused with its place."""

import pytest

from tests.cluster.containerfile import ContainerfileError, Copy, Mount, Run, parse


def test_the_last_stage_is_the_image_and_carries_its_configuration() -> None:
    stages = parse(
        """
        # A comment.
        ARG BASE=registry.example/debian:forky
        FROM ${BASE} AS tools
        RUN make tools
        FROM ${BASE}
        ENV A=1 B="two words"
        USER 401:401
        EXPOSE 22 6818
        ENTRYPOINT ["tini", "--", "daemon"]
        CMD ["-D"]
        """,
        "Containerfile",
    )
    assert [(stage.name, stage.base) for stage in stages] == [
        ("tools", "registry.example/debian:forky"),
        ("1", "registry.example/debian:forky"),
    ]
    config = stages[-1].config
    assert config.environment == {"A": "1", "B": "two words"}
    assert config.user == "401:401"
    assert config.ports == ("22/tcp", "6818/tcp")
    assert (config.entrypoint, config.command) == (("tini", "--", "daemon"), ("-D",))


def test_a_step_over_several_lines_is_one_command_with_its_mounts() -> None:
    (stage,) = parse(
        "FROM x\nRUN --mount=type=bind,source=a,target=/b \\\n  # a comment between\n  first \\\n  "
        "second",
        "f",
    )
    assert stage.steps == (Run("first second", (Mount("a", "/b"),)),)


def test_a_step_sees_the_environment_set_before_it_only() -> None:
    (stage,) = parse("FROM x\nRUN one\nENV A=1\nRUN two", "f")
    assert stage.steps == (Run("one"), Run("two", environment=(("A", "1"),)))


def test_a_stage_continues_the_configuration_of_the_stage_it_is_built_on() -> None:
    stages = parse("FROM x AS first\nUSER 1\nFROM first\nWORKDIR /w", "f")
    assert (stages[1].config.user, stages[1].config.working_directory) == ("1", "/w")


def test_copies_name_the_context_or_a_stage() -> None:
    (stage,) = parse("FROM x\nCOPY a /b\nCOPY --from=first /c /d", "f")
    assert stage.steps == (Copy("a", "/b"), Copy("/c", "/d", "first"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("FROM x\nHEALTHCHECK NONE", "f:2: 'HEALTHCHECK NONE': not one of ARG, FROM"),
        (
            "FROM x\nRUN --mount=type=cache,target=/c make",
            "--mount=type=bind,source=…,target=… alone",
        ),
        ("FROM x\nRUN --network=none make", "--mount=type=bind,source=…,target=… alone"),
        ("FROM x\nCOPY a b /c", "COPY [--from=STAGE] SOURCE TARGET"),
        ("FROM x\nCOPY a b", "an absolute path"),
        ("FROM x\nCOPY a /b/", "does not end in /"),
        ("FROM x\nENTRYPOINT daemon -D", "the exec form"),
        ("FROM x\nENV A 1", "NAME=VALUE"),
        ("FROM ${BASE}", "no ARG BASE with a default"),
        ("FROM --platform=linux/arm64 x", "FROM IMAGE [AS NAME]"),
        ("USER 1", "an instruction before FROM"),
        ("# nothing", "f: no FROM"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_place(text: str, reason: str) -> None:
    with pytest.raises(ContainerfileError) as caught:
        parse(text, "f")
    assert reason in str(caught.value)
