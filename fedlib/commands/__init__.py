"""What is done from a command line besides running notebooks: list what there is; verify, compare, judge and export runs. And
what JupyterLab saves."""
