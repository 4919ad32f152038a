"""Writes the tables of security settings into docs/security.md, from client/security/options.py.

Usage: derive_security.py [--check]. With --check nothing is written; exit status 1 means that the
page is stale. Only the lines between the two markers are derived.
"""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tidelog.client.security.options import OPTIONS, REFUSED, WITHOUT_EFFECT
from tools.derived import between, write_or_check

PAGE = ROOT / "docs" / "security.md"
BEGIN = "<!-- settings: derived, see tools/derive_security.py -->\n"
END = "<!-- /settings -->\n"


def tables() -> str:
    """Returns the settings as Markdown: those that work, those that are refused, those without effect."""
    rows = ["| setting | meaning | default |", "|---|---|---|"]
    for option in OPTIONS:
        meaning = option.meaning[0].upper() + option.meaning[1:]
        if option.choices and option.name != "ssl.endpoint.identification.algorithm":
            meaning += ": " + ", ".join(f"`{one}`" for one in option.choices)
        secret = " (secret)" if option.is_secret else ""
        default = (
            f"`{option.default}`"
            if option.default and " " not in option.default
            else option.default
        )
        rows.append(f"| `{option.name}`{secret} | {meaning} | {default} |")
    by_reason = sorted(REFUSED.items(), key=lambda one: one[1])
    refused = [
        f"- {', '.join(f'`{name}`' for name, _ in names)}: {reason}"
        for reason, names in groupby(by_reason, key=lambda one: one[1])
    ]
    names = ", ".join(f"`{name}`" for name in WITHOUT_EFFECT)
    return "\n".join(
        [
            *rows,
            "",
            "Refused, each with the reason:",
            "",
            *refused,
            "",
            f"Accepted without effect, because the client renews tokens and retries in its own way: {names}.",
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, between(PAGE, BEGIN, END, tables())))
