"""The parser of commands and jobs: a mistake is one sentence that names the nearest word.

    parser = Parser(prog="tidelog")
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        parser.part(options.command).refuse(unknown)

Its help shows every spelling of an option once, and examples as they are written (`with_examples`).
"""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any, NoReturn

from tidelog.text import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

USAGE = 2
_SPELLINGS = r"(--[a-z-]+)(?:/-[a-z-]+)+"
_OPTION = re.compile(r"--[a-z-]+")
_ELSEWHERE = {  # what Kafka's tools and kcat call it
    "--add-config": "write configs set",
    "--config": "write --set KEY=VALUE",
    "--delete-config": "write configs unset",
    "--from-beginning": "write --from earliest",
    "--group": "write GROUP, without an option",
    "--max-messages": "write --max N",
    "--offset": "write --from OFFSET",
    "--port": "write --listeners PLAINTEXT://HOST:PORT",
    "-K": "write --key-separator TEXT",
    "-J": "write --json",
    "-c": "write --max N",
    "-e": "leave it out, reading stops at the end without --follow",
    "-f": "write --format TEXT",
    "-l": "write --file FILE",
    "-o": "write --from PLACE",
    "-p": "write --partition N",
    "-z": "write --compression CODEC",
}


def invalid_choice(value: Any, choices: Iterable[Any], what: str = "invalid choice:") -> str:
    """Returns the sentence for a value that is none of the choices, with the nearest of them."""
    known = list(map(str, choices))
    hint = did_you_mean(str(value), known) or f" (choose from {', '.join(known)})"
    return f"{what} {value!r}{hint}"


class _Formatter(argparse.HelpFormatter):
    """Folds sentences, leaves lines that are indented as they are, and says a value once."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        blocks = []
        for block in text.split("\n\n"):
            is_indented = any(line.startswith("  ") for line in block.split("\n"))
            blocks.append(block if is_indented else super()._fill_text(block, width, indent))
        return "\n\n".join(blocks)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"


class Parser(argparse.ArgumentParser):
    """Reports a mistake in one sentence instead of a page."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **{"formatter_class": _Formatter, **keywords})

    def error(self, message: str) -> NoReturn:
        """Prints the sentence and exits with status 2."""
        self.exit(USAGE, f"{self.prog}: {self.sentence(message)} (see {self.prog} --help)\n")

    def sentence(self, message: str) -> str:
        """Returns a mistake as it is printed: an option has its first spelling alone."""
        return re.sub(_SPELLINGS, r"\1", message)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        if action is self._choice_of_parts:
            what = f"there is no {str(action.metavar).lower()}"
            raise argparse.ArgumentError(None, invalid_choice(value, action.choices, what))
        raise argparse.ArgumentError(action, invalid_choice(value, action.choices))

    @property
    def _choice_of_parts(self) -> Any:
        """The argument that chooses a command, an action or a job; None if there is none."""
        kind = argparse._SubParsersAction  # noqa: SLF001 - it has no public name
        return next((action for action in self._actions if isinstance(action, kind)), None)

    def parts(self) -> Mapping[str, Parser]:
        """Returns the parsers of its commands, actions or jobs."""
        choice = self._choice_of_parts
        return {} if choice is None else choice.choices

    def summaries(self) -> dict[str, str]:
        """Returns the help of its commands, actions or jobs."""
        choice = self._choice_of_parts
        return {} if choice is None else {one.dest: one.help for one in choice._choices_actions}  # noqa: SLF001 - as above

    def hide_parts(self, usage: str) -> None:
        """Leaves its commands out of the help, which has this `usage`."""
        self._choice_of_parts.help = argparse.SUPPRESS
        self.usage = usage

    def part(self, *names: str | None) -> Parser:
        """Returns the parser of a command, or of an action of it; None and other names count as absent."""
        found = self
        for name in names:
            found = found.parts().get(name or "", found)
        return found

    def all_parts(self) -> Iterator[Parser]:
        """Yields this parser and those of all its commands and actions."""
        yield self
        for part in self.parts().values():
            yield from part.all_parts()

    def actions(self) -> Iterator[argparse.Action]:
        """Yields its arguments, without those that no help shows, and the choice of a part."""
        for action in self._actions:
            if action.help != argparse.SUPPRESS and action is not self._choice_of_parts:
                yield action

    def option(self, text: str) -> argparse.Action | None:
        """Returns the option with this spelling."""
        return next((each for each in self.actions() if text in each.option_strings), None)

    def refuse(self, unknown: Sequence[str], actions: Container[str] = ()) -> NoReturn:
        """Exits because of arguments that are not its own; the sentence names the nearest option.

        `actions` are words that somebody may have written as options.
        """
        told = " ".join(each.encode(errors="backslashreplace").decode() for each in unknown)
        self.error(f"unrecognized arguments: {told}{self._hint(unknown, actions)}")

    def _hint(self, unknown: Sequence[str], actions: Container[str]) -> str:
        name = next((each.partition("=")[0] for each in unknown if each.startswith("-")), None)
        if name is None:
            if unknown[0].isdecimal() and self.option("--partition"):
                return f": did you mean --partition {unknown[0]}?"
            many = any(
                not each.option_strings and each.nargs in ("*", "?") for each in self._actions
            )
            return ": names stand before the options" if many else ""
        if name.lstrip("-") in actions:
            return f": write {name.lstrip('-')}"
        known = [text for action in self.actions() for text in action.option_strings]
        hint = _ELSEWHERE.get(name, "")
        if hint and {*_OPTION.findall(hint)} <= {*known}:
            return f": {hint}"
        return did_you_mean(name, known) if name.startswith("--") else ""


def with_examples(parser: Parser, examples: Mapping[str, Iterable[str]]) -> None:
    """Adds examples to the help of a parser and its parts, by their names without that of the program."""
    for part in parser.all_parts():
        lines = examples.get(part.prog.partition(" ")[2])
        if lines is not None:
            part.epilog = "\n".join(["examples:", *(f"  {line}" for line in lines)])
