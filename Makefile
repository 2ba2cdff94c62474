# Every command a developer, CI or a newcomer needs. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.ONESHELL:

PYTHON ?= python3
export SLURM_CHARTS_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/slurm-charts
VENV := $(SLURM_CHARTS_CACHE)/venv
BIN := $(VENV)/bin
# The environment depends on the content of the lock, not on its date.
READY := $(VENV)/ready-$(shell cat requirements/dev.txt | sha256sum | cut -c1-12)
PYTEST = $(BIN)/python -m pytest
DOCS := $(SLURM_CHARTS_CACHE)/docs-venv-$(shell cat requirements/docs.txt | sha256sum | cut -c1-12)
export PIP_CACHE_DIR := $(SLURM_CHARTS_CACHE)/pip
# Empty, also where the environment sets it: a run is many processes, and each would compile all modules and tests again.
export PYTHONDONTWRITEBYTECODE :=
unexport PYTHONPATH

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z][a-z0-9-]*:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

$(READY): | requirements/dev.txt
	@if ! $(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
	  echo "make: needs Python 3.11 or newer with its venv module (Debian, Ubuntu: apt-get install python3 python3-venv)" >&2
	  exit 1
	fi
	echo "installing the locked Python packages into $(VENV)"
	rm -rf '$(VENV)'
	$(PYTHON) -m venv '$(VENV)'
	# Without --no-deps, an older pip takes a newer release for an extra of a pinned package and then refuses it.
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --no-deps --requirement requirements/dev.txt
	$(BIN)/pip --quiet check
	touch '$@'

$(DOCS)/ready: | requirements/docs.txt $(READY)
	@echo "installing the locked packages of the documentation's site into $(DOCS)"
	rm -rf '$(SLURM_CHARTS_CACHE)'/docs-venv-*
	$(PYTHON) -m venv '$(DOCS)'
	'$(DOCS)/bin/pip' install --quiet --disable-pip-version-check --require-hashes --no-deps --requirement requirements/docs.txt
	'$(DOCS)/bin/pip' --quiet check
	touch '$@'

## The local cluster

.PHONY: up
up: $(READY) ## create a Slurm cluster on Kubernetes on this machine (or on the cluster of KUBECONFIG), and run a first job
	@$(BIN)/python -m tests.cluster up $(if $(CGROUP2),--cgroup2) $(if $(IPV6),--ipv6)

.PHONY: down
down: $(READY) ## delete the local cluster
	@$(BIN)/python -m tests.cluster down

.PHONY: kubeconfig
kubeconfig: $(READY) ## print the path of the kubeconfig in use
	@$(BIN)/python -m tests.cluster kubeconfig

.PHONY: record
record: $(READY) ## record what the animation of the README shows, on the local cluster of `up`
	@$(BIN)/python -m tests.cluster.recording
	$(BIN)/python -m schemas.generate

## Tests

.PHONY: test
test: $(READY) ## everything: e2e, and beside it check, verify, charts, docs, slurm; SINCE=origin/main: what changes since then can touch
	@$(BIN)/python -m tests.run

.PHONY: check
check: $(READY) ## fast: format, lint, types, layers, unit tests; T=TEST for some tests
	@$(BIN)/python -m tests.run check

.PHONY: times
times: $(READY) ## what the latest run of tests took: the slowest tests, each stage and lane
	@$(BIN)/python -m tests.run times

.PHONY: docs
docs: $(READY) $(DOCS)/ready ## build the documentation as a site in build/site; check its links, and its pages in Chromium
	@rm -rf build/site
	'$(DOCS)/bin/sphinx-build' --quiet --fail-on-warning --keep-going --fresh-env --doctree-dir build/doctrees docs build/site
	$(BIN)/python -m tests.site build/site
	$(BIN)/python -m tests.browser build/site '$(DOCS)'/lib/python*/site-packages/axe_core_python/axe.min.js

.PHONY: charts
charts: $(READY) ## chart tests: helm lint, helm-unittest, ct lint, rendered objects against the schemas
	@$(BIN)/python -m tests.charts

.PHONY: slurm
slurm: $(READY) ## tests with real daemons as processes: kube-apiserver, etcd, Slurm; T=TEST for some
	@$(BIN)/python -m tests.run slurm

.PHONY: e2e
e2e: $(READY) ## tests with real Slurm on real Kubernetes, in two lanes; LANE=1 for one, T=TEST for some tests
	@$(BIN)/python -m tests.run e2e

.PHONY: gpus
gpus: $(READY) ## tests with the NVIDIA GPUs of this host, as root with cgroup v2; not a part of `test`
	$(PYTEST) --timeout=120 tests/gpus

.PHONY: bench
bench: $(READY) ## benchmarks; B=NAME for one
	$(BIN)/python -m tests.bench $(B)

.PHONY: mutants
mutants: $(READY) ## put known defects, one at a time, into a copy of the code: tests must fail; M=NAME, SINCE=REVISION, RANDOM=N
	@$(BIN)/python -m tests.mutants $(M) $(if $(SINCE),--since='$(SINCE)') $(if $(RANDOM),--random=$(RANDOM)) $(if $(EVERYWHERE),--everywhere)

.PHONY: flakes
flakes: $(READY) ## run a file of tests N times with one core kept busy: F=tests/e2e/test_jobs.py N=20
	@$(BIN)/python -m tests.run flakes

.PHONY: soak
soak: $(READY) ## the long runs: half an hour of the bridge with real Slurm, an upgrade from a former commit and back, random queues, more deletions, operations and examples of properties, the documented log collector and torchrun, former releases of Kubernetes
	$(BIN)/python -m tests.support.bridge_run --minutes 30
	DELETIONS=100 $(PYTEST) --timeout=900 -o timeout_func_only=true tests/e2e/test_no_ghosts.py tests/e2e/soak_prometheus_adapter.py
	$(PYTEST) -o timeout_func_only=true tests/soak
	OPERATIONS=60 SEED=$${SEED:-$$RANDOM} $(PYTEST) -o timeout_func_only=true tests/e2e/test_operations.py
	$(PYTEST) -n 2 --dist worksteal --hypothesis-profile=soak --timeout=3600 tests/unit
	for version in 1.36 1.35; do
	  KUBERNETES_VERSION=$$version $(PYTEST) -n 2 --dist loadfile --timeout=300 tests/integration
	  KUBERNETES_VERSION=$$version $(PYTEST) -o timeout_func_only=true tests/e2e/test_jobs.py tests/e2e/test_scaling.py
	done

## Upkeep

.PHONY: generate
generate: $(READY) ## write the generated files: CRDs, values schemas, reference pages
	@$(BIN)/python -m schemas.generate

.PHONY: verify
verify: $(READY) ## check that the generated files are up to date
	@$(BIN)/python -m schemas.generate --check
	$(BIN)/python -m schemas.image_digests --check

## Releases

.PHONY: release-check
release-check: $(READY) ## check that all parts have the version of pyproject.toml; TAG=vVERSION also checks the changelog's date
	@$(BIN)/python -m release check $(if $(TAG),--tag '$(TAG)')

.PHONY: release-fill
release-fill: $(READY) ## fill in the repository that publishes the release; REPOSITORY=OWNER/NAME
	@$(BIN)/python -m release fill --repository '$(REPOSITORY)'

.PHONY: release-images
release-images: $(READY) ## build the images for this host's architecture into build/release
	@$(BIN)/python -m release images

.PHONY: release-changes
release-changes: $(READY) ## compare the packages of build/release with those of a release; FORMER=FOLDER with its *.spdx.json
	@$(BIN)/python -m release changes --former '$(FORMER)'

.PHONY: postrender
postrender: $(READY) ## build the folder of slurm-postrender for both Helms into build/release
	@$(BIN)/python -m release postrender

.PHONY: release-publish
release-publish: $(READY) ## push the images of build/release and the charts to their registry
	@$(BIN)/python -m release publish

.PHONY: release-sign
release-sign: $(READY) ## sign what release-publish has pushed (needs cosign and the identity of the workflow)
	@$(BIN)/python -m release sign

.PHONY: release-dry-run
release-dry-run: $(READY) ## build, package, push to a registry on this host, and check: everything but the signatures
	@$(BIN)/python -m release dry-run

.PHONY: format
format: $(READY) ## format the Python code
	$(BIN)/ruff check --fix --exit-zero .
	$(BIN)/ruff format .

.PHONY: lock
lock: $(READY) ## update requirements/*.txt from requirements/*.in; UPGRADE=1 for new versions
	@compile() { # NAME [constraint…]
	  $(BIN)/uv pip compile --quiet $(if $(UPGRADE),--upgrade) --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
	    --custom-compile-command 'make lock' "$${@:2}" requirements/$$1.in -o requirements/$$1.txt
	}
	compile runtime
	compile postrender -c requirements/runtime.txt
	compile dev -c requirements/runtime.txt -c requirements/postrender.txt
	compile docs
	compile jupyter

.PHONY: lock-images
lock-images: $(READY) ## update the digests of the charts' default images and of the base image from their registries
	@$(BIN)/python -m schemas.image_digests
