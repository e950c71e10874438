"""Text from strangers made fit to show.

For: everything out of a report, an archive or a file name that reaches a terminal, an error message or Markdown. Not for: HTML, which the
templates escape.
"""

from __future__ import annotations

import re
import unicodedata

from rich.text import Text

_MARKDOWN = re.compile(r"([\\`*_\[\]>#|~])")
_LINKED = re.compile(r"@|:(?=//)|www(?=\.)", re.IGNORECASE)  # what GitHub makes a mention or a link by itself
_LOOK_ALIKE = frozenset({"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "LISU", "FULLWIDTH"})
_MOST_LOOKED_AT = 2000  # characters
_SHOWN_AS_IS = frozenset(" ")
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})  # controls, direction marks, surrogates, separators


def printable(text: str, *, longest: int = 300) -> str:
    """`text` on one line without anything that steers a terminal: such characters are written as escapes (`\\x1b`), and what is past
    `longest` characters is left out, with a note of how much."""
    kept = text if len(text) <= longest else text[:longest]
    shown = kept if kept.isascii() and kept.isprintable() else "".join(map(_shown, kept))
    return shown if len(text) <= longest else f"{shown} … ({len(text) - longest} more characters)"


def printable_lines(text: str, *, most: int = 40, longest: int = 400) -> list[str]:
    """The same, line by line: at most `most` lines of at most `longest` characters each."""
    lines = text[: most * (longest + 1)].split("\n")
    shown = [printable(line.replace("\t", "    "), longest=longest) for line in lines[:most]]
    return shown if len(lines) <= most else [*shown, f"… ({len(lines) - most} more lines)"]


def plain(text: str, style: str = "", *, longest: int = 300) -> Text:
    """The same as a piece of rich text, in which markup has no meaning."""
    return Text(printable(text, longest=longest), style=style)


def markdown(text: str, *, longest: int = 300) -> str:
    """The same for a cell of a Markdown table: nothing in it formats, links, mentions anybody, or ends the cell."""
    shown = _MARKDOWN.sub(r"\\\1", printable(text, longest=longest).replace("&", "&amp;").replace("<", "&lt;"))
    return _LINKED.sub(lambda found: f"{found[0]}\u200b", shown)


def mixed_alphabets(text: str) -> dict[str, list[str]]:
    """The words that are written in letters of several alphabets which look alike, with the names of these alphabets."""
    found = {}
    for word in re.findall(r"[^\W\d_]+", text[:_MOST_LOOKED_AT]):
        alphabets = {unicodedata.name(letter, "?").partition(" ")[0] for letter in word} & _LOOK_ALIKE
        if len(alphabets) > 1:
            found[word] = sorted(alphabets)
    return found


def _shown(character: str) -> str:
    if character in _SHOWN_AS_IS or unicodedata.category(character) not in _HIDDEN_CATEGORIES:
        return character
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
