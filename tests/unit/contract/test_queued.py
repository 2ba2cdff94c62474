"""The sentences of the Slurm Bridge that `kubectl slurm explain` reads."""

import pytest

from sidecars.contract import queued
from sidecars.contract.queued import Sentence

FIELDS = {
    "namespace": "physics",
    "name": "train-0.a",
    "node": "gpu-1.example",
    "job": "17",
    "jobs": "3, 7",
    "device": "gpu/0",
    "reason": "AssocGrpCPUMinutesLimit",
    "error": "HTTP 500: Invalid account (2045)",
    "command": "kubectl create rolebinding bridge --namespace physics",
}
SENTENCES = {name: it for name, it in vars(queued).items() if isinstance(it, Sentence)}


def fields(sentence: Sentence) -> dict[str, str]:
    """Return a value for each field of the sentence."""
    return {name: FIELDS[name] for name in sentence._pattern.groupindex}


@pytest.mark.parametrize("name", SENTENCES)
def test_a_sentence_that_is_written_is_read_with_its_fields_and_as_no_other(name: str) -> None:
    sentence = SENTENCES[name]
    text = sentence.write(**fields(sentence))
    assert sentence.read(f"Slurm job 7 has its nodes, but {text}") == fields(sentence)
    others = {other for other, it in SENTENCES.items() if it.read(text) is not None}
    assert others == {name}


def test_only_a_whole_word_is_slurms_reason() -> None:
    explained = "Slurm job 7 waits: Resources. It is the first in its partition. Slurm expects it"
    assert queued.WAITS.read(explained) == {"job": "7", "reason": "Resources"}
    assert queued.WAITS.read("Slurm job 7 waits: Slurm has not looked at it yet") is None


def test_other_messages_are_not_read() -> None:
    for sentence in SENTENCES.values():
        assert sentence.read("Slurm job 7 is suspended") is None
