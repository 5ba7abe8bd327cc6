import pytest

from fedlib.tools.names import check_name, counted


def test_valid_name_is_returned():
    assert check_name("b", ("a", "b"), "letter") == "b"


@pytest.mark.parametrize("given", ["fedte", "FEDTHE", "FedThe", "the"])
def test_closest_name_is_suggested(given):
    with pytest.raises(ValueError, match=rf"unknown method '{given}'. Did you mean 'FedTHE'\? Valid: 'FedTHE', 'Ditto'\."):
        check_name(given, ("FedTHE", "Ditto"), "method")


def test_nothing_close_gives_only_the_list():
    with pytest.raises(ValueError, match=r"unknown method 'zzz'. Valid: 'FedTHE'\.$"):
        check_name("zzz", iter(["FedTHE"]), "method")


def test_what_else_it_may_be_comes_last():
    with pytest.raises(ValueError, match=r"Valid: 'FedTHE'\. Or a path\.$"):
        check_name("zzz", ["FedTHE"], "method", "Or a path")


def test_where_there_are_none_it_says_so():
    with pytest.raises(ValueError, match=r"Valid: none\.$"):
        check_name("rounds", (), "parameter")


def test_not_a_string():
    with pytest.raises(ValueError, match="unknown method 3"):
        check_name(3, ("FedTHE",), "method")


def test_one_is_in_the_singular():
    assert [counted(n, "seed") for n in (0, 1, 2)] == ["0 seeds", "1 seed", "2 seeds"]
