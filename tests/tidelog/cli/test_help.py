"""What helps a newcomer: commands in groups, examples that hold, the nearest word, completion."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.cli.help.examples import EXAMPLES
from tidelog.cli.parser import _ASKING, _with_topic_first, main, parser_of
from tidelog.pipeline.cli import JOBS
from tidelog.pipeline.cli import parser_of as parser_of_job
from tidelog.text import with_signed_values

JOB_EXAMPLE = re.compile(r"^    (tidelog pipeline (?:.+\\\n)*.+(?:\n {8}.+)*)", re.MULTILINE)


def parts():
    """Every command and action, by name."""
    yield parser_of()
    for command in ("serve", *_ASKING):
        yield from parser_of(command).part(command).all_parts()


def jobs():
    for job in JOBS:
        yield from parser_of_job(job).part(job).all_parts()


def parsed(line):
    """Parses an example, or the part of a pipe that is ours. Fails if the parser refuses it."""
    (command,) = (each for each in line.split("|")[-1:] if "tidelog " in each)
    words = shlex.split(re.sub(r"^.*?tidelog ", "", command).replace(")", ""), comments=True)
    words = words[: words.index(">")] if ">" in words else words
    words = _with_topic_first(with_signed_values(words))
    is_job = words[0] == "pipeline"
    parser = parser_of_job(words[1]) if is_job else parser_of(words[0])
    _, unknown = parser.parse_known_args(words[1:] if is_job else words)
    assert unknown == [], line


def test_every_help_has_three_examples_and_they_hold():
    named = {part.prog.partition(" ")[2] for part in parts()}
    assert {*EXAMPLES} == named
    for name, lines in EXAMPLES.items():
        assert len(set(lines)) == 3, name
        for line in lines:
            assert f"tidelog {name}" in line
            parsed(line)


def test_every_job_has_three_examples_and_they_hold():
    for part in jobs():
        found = JOB_EXAMPLE.findall(part.description)
        assert len(found) >= 3, part.prog
        for line in found:
            assert line.startswith("tidelog pipeline")
            if line != "tidelog pipeline archive --help":
                parsed(line.replace("\\\n", " ").replace("\n", " "))


def test_commands_are_in_groups(capsys):
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    shown = capsys.readouterr().out
    assert "\ntopics and records:\n  topics " in shown
    for command in ("serve", "pipeline", *_ASKING):
        assert len(re.findall(rf"^  {command} ", shown, re.MULTILINE)) == 1
    assert "\nmore:" not in shown
    assert "TIDELOG_BROKER" in shown


@pytest.mark.parametrize("line", ["help", "help topics create", "help pipeline audit"])
def test_help_may_be_written_as_a_command(capsys, line):
    with pytest.raises(SystemExit) as left:
        main(line.split())
    assert left.value.code == 0
    name = line.replace("help", "tidelog", 1)
    assert capsys.readouterr().out.startswith(f"usage: {name} ")


def said(capsys, line):
    try:
        status = main(line.split())
    except SystemExit as left:
        status = left.code
    out, err = capsys.readouterr()
    assert (status, out, err.count("\n")) == (2, "", 1)
    return err


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("sevre", "'sevre': did you mean serve?"),
        ("topic list", "'topic': did you mean topics?"),
        ("topics crate t", "'crate': did you mean create?"),
        ("topics create t --partition 2", "--partition 2: did you mean --partitions?"),
        ("topics --list", "--list: write list"),
        ("topics create t --config retention.ms=1", "write --set KEY=VALUE"),
        ("consume t --from-beginning", "--from-beginning: write --from earliest"),
        ("consume t --max-messages 5", "write --max N"),
        ("groups describe --group g", "--group: write GROUP, without an option"),
        ("offsets t --brokr x:1", "did you mean --broker?"),
        ("serve --listener x", "did you mean --listeners?"),
        ("serve --clock manuel", "'manuel': did you mean manual?"),
        ("pipeline adit", "'adit': did you mean audit?"),
        ("pipeline audit --brokr x:1 --logs .", "did you mean --broker?"),
        ("pipeline archive verify . --rum x", "did you mean --run?"),
        ("completion bush", "'bush': did you mean bash?"),
        ("completion tcsh", "(choose from bash, zsh, fish)"),
    ],
)
def test_a_misspelt_word_gets_the_nearest_one(capsys, line, hint):
    assert hint in said(capsys, line)


def test_a_name_that_argparse_does_not_take_behind_an_option(capsys):
    """Whether it does depends on Python's version."""
    part = parser_of("groups").part("groups", "reset-offsets")
    with pytest.raises(SystemExit):
        part.refuse(["moon"])
    assert "arguments: moon: names stand before the options (see" in capsys.readouterr().err


# --- completion -----------------------------------------------------------------------------------


def words(capsys, *line):
    assert main(["completion", "words", *line]) == 0
    return [each.partition("\t")[0] for each in capsys.readouterr().out.splitlines()]


def test_what_may_follow_is_offered(capsys):
    assert words(capsys, "to") == ["topics"]
    assert words(capsys, "pipe") == ["pipeline"]
    assert words(capsys, "topics", "d") == ["describe", "delete"]
    assert words(capsys, "topics", "create", "t", "--part") == ["--partitions"]
    assert words(capsys, "produce", "t", "--compression", "z") == ["zstd"]
    assert words(capsys, "produce", "t", "--file", "") == []
    assert words(capsys, "completion", "f") == ["fish"]
    assert words(capsys, "pipeline", "mi") == ["mirror"]
    assert words(capsys, "pipeline", "mirror", "--to-b") == ["--to-broker", "--to-brokers"]
    assert "--yes" in words(capsys, "clock", "accept", "-")
    assert words(capsys, "nonsense", "t", "x") == []


def test_each_script_is_one_that_its_shell_takes(capsys, tmp_path):
    """As far as the shells are installed: bash always is."""
    script = tmp_path / "script"
    for shell in ("bash", "zsh", "fish"):
        assert main(["completion", shell]) == 0
        script.write_text(capsys.readouterr().out)
        assert "completion words" in script.read_text()
        if shutil.which(shell) is not None:
            assert subprocess.run([shell, "-n", script], timeout=60, check=False).returncode == 0


@pytest.mark.slow
def test_bash_completes_with_the_script(tmp_path):
    tidelog = tmp_path / "tidelog"
    tidelog.write_text(f'#!/bin/sh\nexec {sys.executable} -m tidelog "$@"\n')
    tidelog.chmod(0o755)
    program = f"""
source <({tidelog} completion bash)
COMP_WORDS=(tidelog topics cr) COMP_CWORD=2
_tidelog {tidelog}
echo "${{COMPREPLY[@]}}"
"""
    root = Path(__file__).parents[3]
    done = subprocess.run(
        ["bash", "-c", program], capture_output=True, text=True, timeout=120, cwd=root, check=False
    )
    assert (done.stdout, done.stderr) == ("create\n", "")
