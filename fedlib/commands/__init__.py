"""What is done from a command line besides running notebooks: list what there is, verify and export a run, open JupyterLab."""
