"""Words of others inside sentences of ours: short, on one line, and with nothing in them that cannot be seen."""

UNSEEN = "\N{REPLACEMENT CHARACTER}"


def plain(text: str, most: int) -> str:
    """Return as much of a text as there is room for; a sign that does not print, or turns the writing, is replaced."""
    line = " ".join(text[: most + 1].split())
    seen = "".join(sign if sign.isprintable() else UNSEEN for sign in line)
    return seen if len(text) <= most else f"{seen[:most]}..."
