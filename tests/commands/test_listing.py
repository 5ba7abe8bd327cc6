import pytest

from fedlib.commands.listing import KINDS, listed, main


@pytest.mark.parametrize("kind", KINDS)
def test_everything_is_listed_with_a_word_about_it(kind):
    lines = listed(kind)
    assert len(lines) > 5
    assert all(len(line.split()) > 1 for line in lines)


def test_networks_of_one_class_are_told_apart():
    lines = {line.split(maxsplit=1)[0]: line.split(maxsplit=1)[1] for line in listed("networks")}
    assert len(set(lines.values())) == len(lines)
    assert lines["mlp_small"] == f"{lines['mlp']} Here hidden=100."


def test_the_command_lists_what_is_asked_for(capsys):
    main(["protocols", "papers"])
    out = capsys.readouterr().out
    assert out.index("BRFL") < out.index("fedthe")
    with pytest.raises(SystemExit, match=r"unknown kind 'protocol'. Did you mean 'protocols'"):
        main(["protocol"])
