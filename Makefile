# Every verb sets itself up: a fresh machine needs nothing but Python 3.10+ and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export HF_HUB_DISABLE_TELEMETRY = 1
# pytest's rewritten tests are kept, or each of its processes rewrites them
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test test-all test-processors nightly fuzz compatibility test-architecture test-floor test-newest check format cards docs dist browser clean gpu gpu-rehearse

setup: $(STAMP)

# torch first and pinned: a looser request would pull gigabytes of CUDA packages
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet "$$(grep '^torch==' constraints.txt)"
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

# train a small NDR on chains of functions, calibrate its early exit, and test it on longer chains
demo: $(STAMP)
	$(BIN)/hf-recurrent demo

# everything that guards correctness; a process a core, and whoever is done first takes tests from the others
PYTEST = -m pytest -n auto --dist worksteal
test: $(STAMP)
	$(BIN)/python $(PYTEST)

# what `make test` leaves out, so that nothing runs twice: all variants, processes, tracing, training runs, the browser,
# and the oldest supported versions
test-all: $(STAMP) test-floor
	$(BIN)/python $(PYTEST) -m "slow and not nightly"

# what must hold on every processor, with the instructions of others than that which runs `make test`
PROCESSORS = default $(if $(shell grep -m1 avx512f /proc/cpuinfo),avx2)
SAME_EVERYWHERE = tests/test_parity*.py tests/test_old_checkpoints.py tests/test_contract.py tests/test_contract_halting.py \
	tests/test_*invariance.py tests/test_token_types.py tests/test_ouro.py tests/test_huginn.py tests/test_albert.py
test-processors: $(STAMP)
	for each in $(PROCESSORS); do ATEN_CPU_CAPABILITY=$$each $(BIN)/python $(PYTEST) $(SAME_EVERYWHERE) || exit; done

# randomised tests, every property on a thousand random examples, and tests with the mark `nightly`
nightly: $(VENV)/.docs $(VENV)-floor/.installed $(VENV)-ecosystem/.installed fuzz gpu-rehearse
	$(BIN)/python $(PYTEST) -m "nightly or hypothesis" --hypothesis-profile nightly -o processor_seconds=0 --ignore=tests/doors \
		--ignore=tests/test_exported_graphs.py
	$(VENV)-ecosystem/bin/python $(PYTEST) -m nightly -o processor_seconds=0 tests/doors tests/test_exported_graphs.py
	$(VENV)-floor/bin/python $(PYTEST) -m "slow or nightly" tests/test_contract_ecosystem.py tests/test_export*.py
	$(VENV)-floor/bin/python $(PYTEST) $(FLOOR_BY_NIGHT)
	$(MAKE) test-newest

# everything that a GPU has to show, in the time that there is, with the Python that has its torch: nothing is installed;
# on a CPU, at toy size: make gpu-rehearse, or make gpu REHEARSE=1
MINUTES = 25
gpu:
	$(if $(REHEARSE),$(MAKE) gpu-rehearse,PYTHONPATH=src:. $(PYTHON) -m gpu.day --minutes $(MINUTES))

gpu-rehearse: $(STAMP)
	$(BIN)/python -m gpu.day --rehearse --again

# randomised tests of tests/fuzz, all or some, with a seed that is printed: make fuzz SECONDS=60 SEED=3 CAMPAIGNS=invariances
SECONDS = 600
fuzz: $(STAMP)
	cd tests && $(abspath $(BIN))/python -m fuzz.run $(CAMPAIGNS) --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

# every door of tests/doors with every architecture, and docs/compatibility.md; some: make compatibility DOORS="Trainer LoRA"
compatibility: $(VENV)-ecosystem/.installed
	cd tests && $(abspath $(VENV)-ecosystem/bin)/python -m doors.table $(DOORS)

$(VENV)-ecosystem/.installed: pyproject.toml constraints.txt constraints-ecosystem.txt
	$(PYTHON) -m venv $(VENV)-ecosystem
	$(VENV)-ecosystem/bin/python -m pip install --quiet --upgrade pip
	$(VENV)-ecosystem/bin/python -m pip install --quiet "$$(grep '^torch==' constraints.txt)"
	$(VENV)-ecosystem/bin/python -m pip install --quiet -c constraints.txt -c constraints-ecosystem.txt -e '.[dev,ecosystem,export]'
	touch $@

# contract, parity and twins of one architecture: make test-architecture ARCH=gut
test-architecture: $(STAMP)
	$(BIN)/python -m pytest $(wildcard tests/test_*.py) --architecture $(ARCH)

# the contract suite, generation and publishing on the oldest supported versions; by night the rest, too
FLOOR = tests/test_contract*.py tests/test_export*.py tests/test_cache.py tests/test_generation.py \
	tests/hub/test_staging.py tests/hub/test_reload.py tests/hub/test_push.py tests/hub/test_push_failures.py
FLOOR_BY_NIGHT = tests/test_parity.py tests/test_flash_attention.py tests/test_language_*.py tests/test_streaming.py
test-floor: $(VENV)-floor/.installed
	$(VENV)-floor/bin/python $(PYTEST) $(FLOOR)

$(VENV)-floor/.installed: pyproject.toml constraints-floor.txt
	$(PYTHON) -m venv $(VENV)-floor
	$(VENV)-floor/bin/python -m pip install --quiet --upgrade pip
	$(VENV)-floor/bin/python -m pip install --quiet "$$(grep '^torch==' constraints.txt)"
	$(VENV)-floor/bin/python -m pip install --quiet -c constraints-floor.txt -e '.[dev]'
	touch $@

# all tiers but the nightly on the newest transformers that pyproject.toml admits
test-newest: $(VENV)-newest/.installed
	$(VENV)-newest/bin/python $(PYTEST) -m "not nightly" -o processor_seconds=0

$(VENV)-newest/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)-newest
	$(VENV)-newest/bin/python -m pip install --quiet --upgrade pip
	$(VENV)-newest/bin/python -m pip install --quiet "$$(grep '^torch==' constraints.txt)"
	grep -vE '^(transformers|huggingface_hub|tokenizers)==' constraints.txt > $(VENV)-newest/constraints.txt
	$(VENV)-newest/bin/python -m pip install --quiet -c $(VENV)-newest/constraints.txt -e '.[dev]'
	touch $@

check: $(STAMP)
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --no-cache --check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/hf-recurrent cards check model_cards

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# render the committed cards and their index anew, and build the browsable page build/model_cards.html
cards: $(STAMP)
	$(BIN)/hf-recurrent cards refresh model_cards
	for folder in tests/checkpoints/*/; do $(BIN)/hf-recurrent card render $$folder; done
	$(BIN)/hf-recurrent cards build model_cards --output build/model_cards.html

# what the tests of the browsable page need; on Debian and its kin, as root
browser:
	command -v chromium && command -v chromedriver || \
		{ apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium chromium-driver; }

# the documentation, strictly, under build/docs; its index.html opens from the file itself
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

$(VENV)/.docs: $(STAMP)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	touch $@

# the wheel and the source distribution, as package pages will have them
dist: $(STAMP)
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*

clean:
	rm -rf $(VENV) $(VENV)-floor $(VENV)-newest $(VENV)-ecosystem build dist .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis
