import pytest

from fedlib.tools.files import atomic


def test_writes_whole_file_and_leaves_nothing_else(tmp_path):
    target = tmp_path / "new" / "a.csv"
    with atomic(target) as path:
        assert path.parent == target.parent
        assert path.suffix == ".csv"
        path.write_text("one")
        assert not target.exists()
    assert target.read_text() == "one"
    assert list(target.parent.iterdir()) == [target]


def test_failure_keeps_the_old_file(tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("old")

    def write():
        with atomic(target) as path:
            path.write_text("half")
            raise RuntimeError("halfway")

    with pytest.raises(RuntimeError, match="halfway"):
        write()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_nothing_written_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"a\.txt is left"), atomic(tmp_path / "a.txt"):
        pass


def test_two_writers_do_not_share_a_temporary_name(tmp_path):
    with atomic(tmp_path / "a.txt") as first, atomic(tmp_path / "a.txt") as second:
        assert first != second
        first.write_text("1")
        second.write_text("2")
    assert (tmp_path / "a.txt").read_text() == "1"
