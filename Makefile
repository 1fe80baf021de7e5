# Everything from a fresh machine with Python 3.10+ and make: `make survey`, then `make test`.

PYTHON ?= python3
NEWEST ?= torch>=2.15,<2.16; python_version >= "3.11"
OLDEST ?= torch==2.11.0
WORKERS ?= 2
TESTED = build/tested
# Bytecode is written even where the surroundings say otherwise: dozens of processes import torch.
TEST = PYTHONDONTWRITEBYTECODE= $(1)/bin/pytest -n $(WORKERS) --dist worksteal --tested $(TESTED)/$(2).json

.PHONY: help survey smoke test test-newest test-unbuilt test-oldest test-front built browser lint docs speed scan database clarke mutations testing bertoin everywhere \
	versions quantisation record frameworks clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

survey: .venv/cli  ## what torch returns at every kink, and whether that keeps its rule
	.venv/bin/subgrad survey

# A run that fails keeps none from running: the account at the end fails for it.
test:  ## lint, all tests on the newest torch, and without the C++ part or on the oldest what may differ there
	rm -rf $(TESTED)
	$(MAKE) --no-print-directory -j2 lint built browser .venv-oldest/ready
	-$(MAKE) --no-print-directory test-newest
	-$(MAKE) --no-print-directory test-unbuilt
	-$(MAKE) --no-print-directory test-oldest
	@.venv/bin/python tests/tested.py $(TESTED)/newest.json $(TESTED)/unbuilt.json $(TESTED)/oldest.json

test-newest: built browser
	$(call TEST,.venv,newest)

# What the part in C++ has a share in: not what is compiled, nor the kernels for GPUs, interpreted without it above.
test-unbuilt: .venv/ready
	SUBGRAD_FRONT=never $(call TEST,.venv,unbuilt) tests/kernels tests/apply -m "not gpu and not compiled" \
		--ignore tests/kernels/test_triton.py

# What is left out, and why, is in tests/may_differ.py; `make test-oldest CHOSEN=` runs it too.
CHOSEN ?= --may-differ

test-oldest: .venv-oldest/ready
	SUBGRAD_FRONT=never $(call TEST,.venv-oldest,oldest) $(CHOSEN)

test-front: .venv-oldest/ready  ## the part in C++ on the oldest torch
	.venv-oldest/bin/subgrad build
	$(call TEST,.venv-oldest,front) tests/kernels tests/apply/test_use.py

built: .venv/ready
	.venv/bin/subgrad build || echo "no C++ compiler can be had here: what tests the C++ part is skipped"

# For the audit's report. Where none can be had, what looks at the report in a browser is skipped.
browser:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get -qq update \
		&& apt-get -qq install -y --no-install-recommends chromium >/dev/null; } || echo "no Chromium can be had here"

lint: .venv/ready  ## ruff and pyright
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/pyright --pythonpath .venv/bin/python

docs: .venv/ready  ## the pages made from what torch returns and commands print: docs/kinks.md, conventions.md, explain.md, atlas.html
	.venv/bin/python scripts/document.py

.PHONY: site pictures
site: .venv-site/ready  ## the documentation as a site, in build/site: warnings are errors, links are checked
	NO_MKDOCS_2_WARNING=1 .venv-site/bin/mkdocs build --strict
	.venv-site/bin/python scripts/site_links.py build/site

pictures: .venv/ready browser  ## the pictures of the documentation, drawn and photographed: docs/images
	.venv/bin/python scripts/pictures.py
	.venv/bin/python scripts/photographs.py

speed: .venv/ready  ## the pages made from the records in benchmarks/records: docs/speed.md, docs/records
	.venv/bin/python scripts/records.py
	.venv/bin/python scripts/speed.py

scan: .venv/ready  ## every operator of PyTorch's database, probed for kinks that the table lacks: docs/scan.md
	.venv/bin/python scripts/scan.py

database: .venv/ready  ## PyTorch's database as a test suite under conventions: every sample
	.venv/bin/python scripts/database.py
	.venv/bin/python scripts/before_after.py

# Half an hour; `scripts/nearby.py --programs 500` is for a first look.
clarke: .venv/ready  ## the gradient of 30,000 programs against exact sets and their own values: docs/clarke-evidence.md
	.venv/bin/python scripts/clarke.py
	.venv/bin/python scripts/nearby.py
	.venv/bin/python scripts/never_nan.py

mutations: .venv/ready  ## 210 wrong rules planted one by one, and who catches them: docs/clarke-evidence.md
	.venv/bin/python scripts/mutations.py

testing: .venv/ready  ## gradcheck against 3,000 functions and the table, right and wrong: docs/testing.md
	.venv/bin/python scripts/testing_evidence.py

bertoin: .venv/ready  ## how often relu'(0) matters, in 16, 32 and 64 bits: docs/bertoin.md
	.venv/bin/python scripts/bertoin.py

everywhere: .venv/ready  ## every way to differentiate, under every convention: docs/everywhere.md
	.venv/bin/python scripts/everywhere.py

quantisation: .venv/ready  ## torchao, torch.ao.quantization and brevitas on torch 2.13 and 2.15: the table of docs/quantisation.md
	.venv/bin/python scripts/quantisation.py

versions: .venv/ready  ## the published cases on torch 2.11 to 2.15, each in an environment of its own
	.venv/bin/python scripts/versions.py

record: .venv/ready  ## record what the real torch 2.13 and 2.14 return for every sample
	.venv/bin/python scripts/record.py

frameworks: .venv/ready  ## what the real JAX, TensorFlow, MLX, Paddle, tinygrad and autograd return: docs/frameworks.md
	.venv/bin/python scripts/record_frameworks.py

smoke: .venv-uv/ready  ## wheel and sdist, built, and tried in empty environments on every Python that is here
	.venv-uv/bin/python scripts/smoke.py

clean:  ## remove the environments
	rm -rf .venv .venv-oldest .venv-site .venv-uv .venv-torch-*

.venv-uv/ready:
	$(PYTHON) -m venv .venv-uv
	.venv-uv/bin/python -m pip install --quiet uv
	touch $@

# What `make survey` needs and no more: torch and the command line.
.venv/cli: pyproject.toml | .venv-uv/ready
	.venv-uv/bin/uv venv --quiet --allow-existing --python $(PYTHON) .venv
	.venv-uv/bin/uv pip install --quiet --python .venv/bin/python -e '.[cli]' '$(NEWEST)'
	touch $@

.venv/ready: .venv/cli
	.venv-uv/bin/uv pip install --quiet --python .venv/bin/python -e '.[dev]' '$(NEWEST)'
	touch $@

.venv-oldest/ready: pyproject.toml | .venv-uv/ready
	.venv-uv/bin/uv venv --quiet --allow-existing --python $(PYTHON) .venv-oldest
	.venv-uv/bin/uv pip install --quiet --python .venv-oldest/bin/python -e '.[dev]' '$(OLDEST)'
	touch $@

# Of the package only its sources are read, so that no torch is needed.
.venv-site/ready: pyproject.toml | .venv-uv/ready
	.venv-uv/bin/uv venv --quiet --allow-existing --python $(PYTHON) .venv-site
	.venv-uv/bin/uv pip install --quiet --python .venv-site/bin/python --group docs
	touch $@
