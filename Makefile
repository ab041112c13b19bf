# make demo and make test need nothing but python3 (3.10 or newer): they create .venv and fill it.
# On Linux without an NVIDIA GPU the plain torch brings CUDA libraries of several GB: put a CPU build
# of torch into .venv first, or name one: make test TORCH=torch==X.Y.Z
PYTHON ?= python3
TORCH ?= torch==2.13.0
EXTRAS ?= cli,dev,docs,io,onnx,train
PYTEST_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/stamp-$(EXTRAS)
NATIVE := $(wildcard sparse3d/cpu/csrc/*)
FORMATTED = $(shell git ls-files '*.cpp' '*.h' '*.hpp' '*.metal' '*.mm' '*.cu')

.PHONY: demo picture test coverage setup lint types format wheel library clean

# A real labelled frame, where one lies beside the repository: its data set's terms keep it out of it.
REAL := $(wildcard ../shared/data/lidar/kitti_spvnas_000000.bin)

demo: $(STAMP)
	$(BIN)/sparse3d segment --demo --out out/demo
	$(if $(REAL),$(BIN)/sparse3d segment $(REAL) --truth $(REAL:.bin=.label) --out out/demo/real)

# The picture of README.md is the demo's own.
picture: demo
	cp "$$(ls out/demo/*.png | head -n 1)" docs/images/demo.png

# `python -m pytest`: the source tree first, the compiled library from the installation.
test: $(STAMP)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

# Lines of the package that the tests reach: the default suite, and what launches Metal kernels through the emulator.
# Fails under 95 %; [tool.coverage] in pyproject.toml says what counts. No workers: pytest-xdist ends them before a slow
# machine has saved what they measured.
coverage: export OMP_NUM_THREADS := 1
coverage: $(STAMP)
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q --ignore=tests/metal --ignore=tests/metal_emu
	$(BIN)/coverage run -m pytest -q --backend metal --metal-front gcc $(METAL_LAUNCHES)
	$(BIN)/coverage combine -q
	$(BIN)/coverage report

METAL_LAUNCHES := tests/contract tests/reports tests/metal

setup: $(STAMP)

$(BIN)/python:
	$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 10) and "Python 3.10 or newer is needed, got %d.%d: make PYTHON=..." % v[:2])'
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(STAMP): pyproject.toml CMakeLists.txt $(NATIVE) | $(BIN)/python
	$(BIN)/python -c 'import torch' 2>/dev/null || $(BIN)/python -m pip install --quiet '$(TORCH)' numpy
	rm -f sparse3d/cpu/libsparse3d_cpu.so # from make library: it would shadow the new one
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$(EXTRAS)]'
	@# A library that does not compile is left out in silence; make library shows the compiler's words.
	@$(BIN)/python -m sparse3d doctor | grep '^library'
	touch $@

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	@echo clang-format --dry-run --Werror
	@$(if $(FORMATTED),$(BIN)/clang-format --dry-run --Werror $(FORMATTED))
	$(BIN)/lint-imports --no-logo
	@echo codespell
	@$(BIN)/codespell $(shell git ls-files '*.md' '*.py' '*.cpp' '*.h' '*.metal')

types: $(STAMP)
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(if $(FORMATTED),$(BIN)/clang-format -i $(FORMATTED))

wheel: $(STAMP)
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

# The compiled library beside its sources (git ignores it): for work without an installation.
library:
	cmake -S . -B build/library -DCMAKE_BUILD_TYPE=Release
	cmake --build build/library --parallel $(shell getconf _NPROCESSORS_ONLN)
	cmake --install build/library --prefix .

clean:
	rm -rf build dist out
