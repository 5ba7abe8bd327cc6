"""Names given by people: checked against the valid ones, with the closest in the message; and numbers told to them."""

import difflib
from collections.abc import Iterable


def check_name(name: str, valid: Iterable[str], what: str, remedy: str = "") -> str:
    """Return ``name`` if it is one of ``valid``; otherwise raise ValueError naming the closest valid name, all of them, and the ``remedy``,
    what else it may be."""
    valid = list(valid)
    if name in valid:
        return name
    close = difflib.get_close_matches(str(name).lower(), [v.lower() for v in valid], n=1, cutoff=0.5)
    near = next((v for v in valid if close and v.lower() == close[0]), None)
    hint = f" Did you mean {near!r}?" if near else ""
    raise ValueError(f"unknown {what} {name!r}.{hint} Valid: {', '.join(map(repr, valid)) or 'none'}.{remedy and f' {remedy}.'}")


def counted(n: int | str, unit: str, units: str | None = None) -> str:
    """``n``, or several numbers as text, with its unit, given in the singular: ``1 seed``, ``3 seeds``, ``1/3 seeds``; units: a plural with
    more than an s."""
    return f"{n} {unit if str(n) == '1' else units or unit + 's'}"
