"""Text of the system on its way between processes: paths and variables may be any bytes but 0.

Messages hold UTF-8. What has none goes as a zero, which none of these texts has, and a character a
byte. What has UTF-8 goes as it is.
"""

from __future__ import annotations

import os
import re
import sys

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
"""What one Python pickles, another one of the same two numbers reads."""


def sent(text: str) -> str:
    """A text of the system as text that can be sent; `received` is the way back.

    Raises UnicodeEncodeError for a text that stands for no bytes.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return "\0" + os.fsencode(text).decode("latin-1")
    return text


def received(text: str) -> str:
    return os.fsdecode(text[1:].encode("latin-1")) if text.startswith("\0") else text


def expanded(value: str) -> str:
    """The value of a variable that users set, with what the node has for each `${NAME}` in it."""
    return _NAMED.sub(lambda named: os.environ.get(named[1], ""), value)


_NAMED = re.compile(r"\$\{([^{}=]+)\}")
