import os
import subprocess
import sys

from fedlib.tools.parameters import PROJECT


def test_the_module_is_the_command(tmp_path):
    """``python -m fedlib.cache`` lists a cache in which there is nothing yet."""
    asked = [sys.executable, "-m", "fedlib.cache", "--cache", str(tmp_path)]
    done = subprocess.run(asked, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": str(PROJECT)})
    assert done.stdout == "0 of 0 trainings, 0 of 0 MB\n"
