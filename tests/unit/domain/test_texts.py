"""What a terminal obeys or a reader cannot see is spelled out; all other text stays."""

import pytest

from headrace.domain.texts import escape_unseen


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 漢\u3000字", "plain é 漢\u3000字"),
        ("\x1b[2J\x7f", r"\x1b[2J\x7f"),
        ("\x9b2J", r"\x9b2J"),
        ("a\rb", r"a\rb"),
        ("a\tb\r\nc", "a\tb\r\nc"),
        ("\u202egnp\u200b", r"\u202egnp\u200b"),
        ("\u2066left\u2069 \u061c\ufeff\u2028", r"\u2066left\u2069 \u061c\ufeff\u2028"),
        ("שלום café 👩\u200d🚀 1\u202f000", "שלום café 👩\u200d🚀 1\u202f000"),
        ("\U000e0041\ud800", r"\U000e0041\ud800"),
    ],
)
def test_unseen_characters_are_escaped(text: str, shown: str) -> None:
    assert escape_unseen(text) == shown


def test_a_caller_may_spell_them_in_another_way() -> None:
    assert escape_unseen("a\u202eb", lambda sign: f"<{ord(sign):x}>") == "a<202e>b"
