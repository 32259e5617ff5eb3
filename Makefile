# Two commands: `make demo` and `make test`. Everything they need is installed into .venv on the first run.

UV := $(shell command -v uv 2>/dev/null || echo .tools/bin/uv)
PYTHON ?= $(shell for p in python3.12 python3.13 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
RUN := .venv/bin/

.PHONY: demo test lint types unit long simulate bench install lock clean

demo: install
	@$(RUN)p2pexo demo $(ARGS)

test: lint types unit

lint: install
	$(RUN)ruff check .
	$(RUN)ruff format --check .

types: install
	$(RUN)pyright

# Two processes, each with whole files; more by ARGS="-n 8". In the files' order, since the slow ones come first.
# The tests start hundreds of processes, which would compile everything anew where PYTHONDONTWRITEBYTECODE is set.
unit: install
	@$(RUN)python -m compileall -q p2pexo networking tests
	$(RUN)pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

# Simulated clusters in virtual time, one per seed, on all cores. A single seed is replayed and its story told.
simulate: install
	@$(RUN)python -m networking.simulate $(or $(SEEDS),0-999)

# What `make test` has no time for.
long: install
	$(RUN)pytest -m long $(ARGS)

bench: install
	@test -n "$(NAME)" || { echo "say which: make bench NAME=hops" >&2; exit 2; }
	@$(RUN)python bench/$(NAME).py $(ARGS)

install: .venv/installed

.venv/installed: requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "p2pexo needs Python 3.11 or newer; none was found on the PATH" >&2; exit 1; }
	@command -v uv >/dev/null || test -x .tools/bin/uv || { $(PYTHON) -m venv .tools && .tools/bin/pip install --quiet uv; }
	@test -x .venv/bin/python || $(UV) venv --quiet --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" .venv
	@$(UV) pip sync --quiet --compile-bytecode --python .venv/bin/python requirements.lock
	@$(UV) pip install --quiet --python .venv/bin/python --no-deps --editable .
	@# trio-typing, which libp2p imports, carries stubs of an old trio that would hide trio's own types from pyright.
	@rm -rf .venv/lib/python*/site-packages/trio-stubs
	@touch $@

lock:
	$(UV) pip compile --universal --quiet --group dev pyproject.toml -o requirements.lock

clean:
	rm -rf .venv .tools .pytest_cache .ruff_cache .hypothesis
