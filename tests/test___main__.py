import pytest

from fedlib.__main__ import COMMANDS
from fedlib.__main__ import main as command


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_with_an_example(name, capsys):
    with pytest.raises(SystemExit) as stopped:
        command([name, "--help"])
    assert stopped.value.code == 0
    assert "example" in capsys.readouterr().out


def test_an_unknown_command_is_refused(capsys):
    with pytest.raises(SystemExit):
        command(["runn"])
    assert "invalid choice: 'runn'" in capsys.readouterr().err


def test_without_a_command_the_help_is_shown():
    with pytest.raises(SystemExit, match="fedlib list methods"):
        command([])


def test_stopping_any_command_ends_it_without_a_traceback(monkeypatch):
    def interrupted(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedlib.commands.listing.main", interrupted)
    with pytest.raises(SystemExit, match="stopped"):
        command(["list"])


def test_a_reader_who_has_seen_enough_is_no_error(monkeypatch):
    def listed(arguments):
        raise BrokenPipeError

    moved = []
    monkeypatch.setattr("fedlib.commands.listing.main", listed)
    monkeypatch.setattr("os.dup2", lambda source, target: moved.append(target))
    command(["list"])
    assert moved == [1], "what is left to be flushed goes nowhere"
