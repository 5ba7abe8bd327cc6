"""Values given on a command line, read as YAML 1.2 would."""

import math
import re

import yaml

# What YAML 1.1 reads in another way than people and YAML 1.2 do.
_REFUSED = {
    r"[-+]?[0-9]+(:[0-5]?[0-9])+(\.[0-9]*)?": "write the number out, or put it in quotes if it is a name",
    r"[-+]?0[0-9_]+": "write the number without leading zeros",
    r"(?=.*_)[-+]?(0x[0-9a-f_]+|\.?[0-9][0-9_.]*(e[-+]?[0-9]+)?)": "write the number without underscores",
    r"[-+]?0b[01_]+": "write the number in decimal digits",
    r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}.*": "no parameter is a date; put it in quotes if it is a name",
    r"yes|no|on|off|y|n": "write true or false, or put it in quotes if it is a name",
    r"[-+]?\.?inf|\.nan": "give a finite number",
}


def read_value(name: str, text: str) -> object:
    """The builtin value of ``text``. Raises ValueError for what is not YAML, and for values that versions of YAML read differently."""
    try:
        nodes = [token for token in yaml.scan(text, yaml.SafeLoader) if isinstance(token, yaml.ScalarToken)]
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"parameter {name}: {text!r} is not a YAML value ({str(error).splitlines()[0]})") from error
    for node in nodes:
        for pattern, remedy in _REFUSED.items():
            if node.plain and re.fullmatch(pattern, node.value, re.IGNORECASE):
                raise ValueError(f"parameter {name}: {node.value!r} has more than one meaning in YAML: {remedy}")
    return _number(value)


def _number(value: object) -> object:
    """``value`` with numbers such as 1e-3, which YAML 1.1 reads as text."""
    if isinstance(value, list):
        return [_number(item) for item in value]
    if isinstance(value, str) and re.fullmatch(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+", value) and math.isfinite(float(value)):
        return float(value)
    return value
