# make reproduce: every table and figure in one profile;  make test: what CI runs.
PROFILE ?= smoke
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One thread per process: two busy threads on a shared machine cost several times what they gain.
export OMP_NUM_THREADS := 1
# Compiled modules and tests are kept between runs: seconds of every process.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: reproduce paper test test-processors test-slow bench gpu lint lab clean

reproduce: $(VENV)/.installed
	$(BIN)/python -m fedlib.reproduce --profile $(PROFILE)

# The papers' full schedules on their data (DATA, default data/), on a GPU where there is one; stop and repeat at will.
paper: $(VENV)/.installed
	nice -n 19 $(BIN)/python -m fedlib.campaign $(if $(DATA),-p data_root $(abspath $(DATA)))

test: lint
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder --nbval-lax -m "not slow" notebooks tests

# Claims of equal bits as an older processor sees them: without vector instructions, with AVX2, with AVX-512 where there is some.
ARITHMETIC := tests/adapt tests/models tests/personalize tests/train tests/protocols/test_transforms.py
ARITHMETIC += tests/test_federation.py tests/stages/test_stacks.py
QUICK := $(BIN)/python -m pytest -n auto --maxprocesses 4 -m "not slow" $(ARITHMETIC)
test-processors: $(VENV)/.installed
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 OPENBLAS_CORETYPE=Nehalem $(QUICK)
	ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 OPENBLAS_CORETYPE=Haswell $(QUICK)
	ONEDNN_MAX_CPU_ISA=AVX512_CORE $(QUICK)

test-slow: $(VENV)/.installed
	$(BIN)/python -m pytest -m slow tests

bench: $(VENV)/.installed
	$(BIN)/python -m tests.benchmarks

# On a machine with a GPU, in ten minutes, installing nothing: its tests, what is fastest there, FedTHE's Table 1 as far as it gets.
gpu:
	$(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) -m tests.gpu $(if $(DATA),--data $(abspath $(DATA))) $(GPU)

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# LAB: further options, such as "--no-browser --port 8890" on another machine, or --allow-root in a container.
lab: $(VENV)/.installed
	$(BIN)/jupyter lab --config jupyter_server_config.py --LabApp.default_url=/lab/tree/notebooks $(LAB)

$(VENV)/.installed: requirements.txt constraints.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile -r requirements.txt
	touch $@

clean:
	rm -rf $(VENV) cache
