"""`tidelog completion bash|zsh|fish`: prints the script that completes the words of a command line.

    source <(tidelog completion bash)                                    # in ~/.bashrc
    source <(tidelog completion zsh)                                     # in ~/.zshrc, after compinit
    tidelog completion fish > ~/.config/fish/completions/tidelog.fish

The script asks `tidelog completion words WORD...` for what may stand at the place of the last word: one
word a line, with a tab and what it means. Nothing is asked of a broker. Where nothing is known, as for a
file's name, the shell completes files.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from tidelog.command_line import Parser

_BASH = r"""_tidelog() {
    local IFS=$'\n'
    COMPREPLY=($("$1" completion words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1))
}
complete -o default -F _tidelog tidelog
"""
_ZSH = r"""#compdef tidelog
_tidelog() {
    local -a found
    found=("${(@f)$("${words[1]}" completion words "${(@)words[2,CURRENT]}" 2>/dev/null \
        | sed -e 's/:/\\:/g' -e $'s/\t/:/')}")
    if [[ -n "$found" ]]; then _describe tidelog found; else _files; fi
}
compdef _tidelog tidelog
"""
_FISH = r"""function __tidelog_words
    set -l before (commandline -opc)
    set -l found ($before[1] completion words $before[2..-1] "$(commandline -ct)" 2>/dev/null)
    if set -q found[1]
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c tidelog -f -a '(__tidelog_words)'
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def add_completion(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `tidelog completion`."""
    parser.add_argument("shell", choices=list(_SCRIPTS), help="whose script to print")
    parser.set_defaults(run=_print)


def _print(options: argparse.Namespace) -> None:
    sys.stdout.write(_SCRIPTS[options.shell])


def print_words(words: Sequence[str]) -> int:
    """Prints what may stand at the place of the last word; returns the exit status."""
    *before, begun = words or [""]
    for word, meaning in _candidates(before):
        if word.startswith(begun):
            sys.stdout.write(f"{word}\t{' '.join(meaning.split())}\n")
    return 0


def _candidates(before: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields the words that may follow others, with their meanings."""
    parser = _parser(before)
    for word in before:
        parser = parser.part(word)
    if before and (option := parser.option(before[-1])) is not None and option.nargs != 0:
        yield from ((str(each), "") for each in option.choices or ())
        return
    yield from parser.summaries().items()
    for action in parser.actions():
        if not action.option_strings:
            yield from ((str(each), action.help or "") for each in action.choices or ())
        for text in action.option_strings:
            if text.startswith("--"):
                yield text, action.help or ""


def _parser(before: Sequence[str]) -> Parser:
    """Returns the parser of the command, or of the job, that is first among some words."""
    from tidelog.cli.parser import parser_of

    if before[:1] != ["pipeline"]:
        return parser_of(before[0] if before else None)
    from tidelog.pipeline.cli import parser_of as parser_of_job

    return parser_of_job(before[1] if len(before) > 1 else None)
