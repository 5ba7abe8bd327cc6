import pytest

from fedlib.tools.values import read_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("40", 40),
        ("-1", -1),
        ("0", 0),
        ("0.1", 0.1),
        ("1e-3", 0.001),
        ("[1e-3, 2]", [0.001, 2]),
        ("[0, 1, 2]", [0, 1, 2]),
        ("[FedAvg, FedAvg+FT, FedTHE+]", ["FedAvg", "FedAvg+FT", "FedTHE+"]),
        ("none", "none"),
        ("null", None),
        ("true", True),
        ("'1:30'", "1:30"),
        ("/my/data", "/my/data"),
        ("cifar10_jpeg", "cifar10_jpeg"),
        ("F2a", "F2a"),
        ("0x10", 16),
        ("2_domains", "2_domains"),
        ("_1", "_1"),
    ],
)
def test_values(text, value):
    read = read_value("x", text)
    assert read == value
    assert type(read) is type(value)


REFUSED = ["010", "[0, 010]", "1_000", "2026-11-22", "on", "No", ".inf", ".nan", "[0.1, .nan]"]
REFUSED += ["0b11", "-0B1", "0x1_0", ".5_0", "1.5_0", "1_0.5e+3", "[1, 0b11]"]


@pytest.mark.parametrize("text", ["1:30", *REFUSED])
def test_what_yaml_versions_read_differently_is_refused(text):
    with pytest.raises(ValueError, match=r"parameter x: .* has more than one meaning in YAML"):
        read_value("x", text)


def test_what_is_no_yaml():
    with pytest.raises(ValueError, match=r"parameter x: '\[1, 2' is not a YAML value"):
        read_value("x", "[1, 2")
