# The verbs of the kit. Nothing here names a backend or an article: they come from docker/pins.toml and bench/articles/.

.DEFAULT_GOAL := help
.PHONY: always
.SUFFIXES:
SHELL := bash

# python3.11 first: the demo's CPU build of torch is pinned for 3.11 to 3.14, and 3.11 is the oldest that the tools run on.
PYTHON ?= $(shell for name in python3.11 python3.12 python3.13 python3.14 python3; do if $$name --version >/dev/null 2>&1; then echo $$name; break; fi; done)
PY := .venv/bin/python
# The groups of docker/pins.toml [host.pins]: each is installed with the first target that needs it.
RUN := .venv/.run
SITE := $(RUN) .venv/.site
DEV := $(SITE) .venv/.dev

# `always` in a pattern rule lets it run even where a file of that name exists; .PHONY does not work with patterns.

# What may be typed after a target; scripts/commands says what each may be.
export SEED FAULTS KIND
export SCHEDULER PARTITION ACCOUNT QOS TIME CONSTRAINT
export GPUS GPU_IDS ARTICLE VARIANT STACK WEIGHTS SCALE ENGINE DEVICE FORCE TIMEOUT_S ALLOW_BUSY GPU_MODE MODELS MODEL_PATH PYTHON_HOST RUNS OUT KIT_MEMLOCK
export BATCH_SIZES ITEMS CASES CLAIMS TIMED_RUNS REPEATS JOBS PLAN PROFILER A B ACROSS THRESHOLD ALL_ROWS FORMAT BACKEND ARCHIVES PIECES PYTHONS REGISTRY WHEELS ONLY COST_PER_GPU_HOUR REMOTE BRANCH TAKE_BRANCH BUNDLE

# A misspelled variable would measure with a default in silence, so one that is not known stops make before anything runs.
OPTIONS := $(shell sed -n '/:=/!s/^export //p' $(firstword $(MAKEFILE_LIST)))
KNOWN := $(OPTIONS) PYTHON PY KIT_LOCKS KIT_SIF KIT_SQSH KIT_NEEDS_DOCKER HF_TOKEN HF_HOME HF_HUB_CACHE HF_ENDPOINT DOCKER_HOST DOCKER_CONTEXT CONTAINER_HOST \
  PIP_% UV_% %_PROXY %_proxy CUDA_VISIBLE_DEVICES LD_LIBRARY_PATH SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE CC TMPDIR \
  MAKE% SHELL .SHELLFLAGS VPATH CURDIR SUFFIXES -%
TYPED := $(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),$(name)))
UNKNOWN := $(filter-out $(KNOWN),$(TYPED))
$(if $(UNKNOWN),$(error error: $(or $(shell $(PYTHON) -m scripts.commands.variables '$(subst ','\'',$(firstword $(UNKNOWN)))' $(KNOWN)),$(firstword $(UNKNOWN)) is not a variable of the kit)))

# A variable that was typed and came out empty, as `GPUS=$$N` and `GPUS= 2` do, would measure with a default.
EMPTY := $(firstword $(foreach name,$(filter $(OPTIONS),$(TYPED)),$(if $(strip $($(name))),,$(name))))
$(if $(EMPTY),$(error error: $(EMPTY) is empty, allowed is a value; type $(EMPTY)=value, or leave $(EMPTY) out))

# `GPUS 1` would run the target with a default, and only then say that there is no target GPUS.
STRAY := $(firstword $(filter $(OPTIONS),$(MAKECMDGOALS)))
$(if $(STRAY),$(error error: $(STRAY) is a variable and no target; type $(STRAY)=value, without blanks))

# Beside another target a word that is none, as in `demo extra`, would be told of at the end, when that one has run.
TARGETS = $(shell sed -n 's/^\([a-z.][a-zA-Z%./ _-]*\):\([^=].*\)*$$/\1/p' $(firstword $(MAKEFILE_LIST)))
NO_TARGET := $(if $(word 2,$(MAKECMDGOALS)),$(firstword $(filter-out $(TARGETS),$(MAKECMDGOALS))))
$(if $(NO_TARGET),$(error $(or $(shell $(PYTHON) -m scripts.commands.targets '$(subst ','\'',$(NO_TARGET))' '$(subst ','\'',$(firstword $(MAKECMDGOALS)))'),error: there is no target $(NO_TARGET))))

# The verb of a single target refuses a variable that it does not read. ARCHIVES also serves the installation of the tools.
export KIT_TYPED := $(if $(word 2,$(MAKECMDGOALS)),,$(filter-out ARCHIVES,$(filter $(OPTIONS),$(TYPED))))

.PHONY: help
help: ## Print this help
	@echo "usage: make TARGET [VARIABLE=value …]"
	@echo
	@sed -n 's/^\([a-z][a-z%-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r target text; do printf '  %-18s %s\n' "$$target" "$$text"; done
	@echo
	@echo "variables of bench-% and article-%:"
	@echo "  GPUS=n | GPU_IDS=a,b    number of free GPUs, or their numbers  (default: as many as the article)"
	@echo "  STACK=article|<stack>   set of pinned versions                 (default: the article's)"
	@echo "  VARIANT=published|controlled                                   (default: published, where there is one; article-%: both)"
	@echo "  WEIGHTS=hub|random      real weights, or seeded random ones    (default: hub)"
	@echo "  SCALE=full|tiny         DEVICE=cuda|cpu                    (default: full cuda)"
	@echo "  ENGINE=docker|podman|apptainer|pyxis|host  what a job runs in  (default: docker)"
	@echo "  ARTICLE=<slug>          FORCE=1 measures stored runs again     TIMEOUT_S=seconds of one job (3600)"
	@echo "  PYTHON_HOST=/path       the interpreter of ENGINE=host; {backend} becomes the backend's name"
	@echo "  ALLOW_BUSY=1            takes GPUs that others use             MODELS=, RUNS=  other folders"
	@echo "  MODEL_PATH=/folder      a folder that holds the real weights: they are checked, not copied"
	@echo "  BATCH_SIZES=1,8,64      batch sizes in place of the article's"
	@echo "  CASES=<case>,<case>     only these of an article's cases       ITEMS=n  texts of a workload (10000)"
	@echo "  CLAIMS=2.6,2.7          only the rows that these claims of the article compare; a verdict needs REPEATS=5"
	@echo "  TIMED_RUNS=n            timed calls of a run, in place of the article's; verdicts count REPEATS"
	@echo "  REPEATS=n               runs of each row, a fresh process each, in alternating order (default: 1)"
	@echo "  JOBS=n                  cases at once, each on GPUs (or cores) of its own; their runs judge nothing"
	@echo "  SCHEDULER=slurm         on a cluster; PARTITION= ACCOUNT= QOS= TIME= CONSTRAINT=, as docs/clusters.md says"
	@echo "  PLAN=1                  prints rows, stored and missing runs, and the expected time; starts nothing"

.venv/.%: scripts/requirements/%.txt
	@test -n "$(PYTHON)" && $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: the kit needs Python 3.11 or newer, found $$($(PYTHON) --version 2>&1); type make PYTHON=/path/to/python3.11" >&2; exit 3; }
	@$(PYTHON) -m scripts.commands.tools $*

.venv/.run: scripts/requirements/installer.txt
.venv/.site .venv/.dev: .venv/.run

.PHONY: demo
demo: $(RUN) ## Run every backend that a CPU can run on tiny random models; report in reports/demo
	@$(PY) -m scripts demo

.PHONY: tests docs docker reports scripts
tests docs docker reports scripts: # or make would call the folder up to date
	@echo "error: $@ is a folder and not a target$(if $(filter tests,$@),; try make test); make alone lists the targets" >&2; exit 2

.PHONY: bench article build profile instrument verify rebuild sbom manifest
bench article build profile instrument verify rebuild sbom manifest: # without a name, or make would take the folder bench/ for a finished target
	@echo "error: $@ needs a name; try make $@-$(if $(filter article,$@),inference-tools,$(if $(filter instrument,$@),layers CASES=int8,layer-parallel)); make alone lists the targets" >&2; exit 2

# $(shell) hands a name to the shell in one piece, whatever it holds; in a recipe a line break in it would begin another command.
.DEFAULT:
	@$(shell $(PYTHON) -m scripts.commands.targets '$(subst ','\'',$@)' >&2)exit 2

# What is typed after a verb goes through the environment: a shell would run what stands between its quotes.
bench-% profile-% instrument-% article-% build-% verify-% rebuild-% sbom-% manifest-%: export KIT_NAME = $*

bench-%: $(RUN) always ## Run a backend's cases in its pinned image: make bench-deepspeed GPUS=2
	@$(PY) -m scripts bench "$$KIT_NAME"

profile-%: $(RUN) always ## Profile one call of a backend's cases: make profile-deepspeed PROFILER=torch|nsys
	@$(PY) -m scripts profile "$$KIT_NAME"

instrument-%: $(RUN) always ## Examine a case by one of docs/method.md's instruments: make instrument-collectives CASES=deepspeed GPUS=2
	@$(PY) -m scripts instrument "$$KIT_NAME"

article-%: $(RUN) always ## Run all cases of an article in all variants: make article-inference-tools
	@$(PY) -m scripts article "$$KIT_NAME"

.PHONY: status
status: $(RUN) ## Show which tasks of SCHEDULER=slurm wait, run or failed, from SLURM's queue and the results
	@$(PY) -m scripts status

manifest-%: $(RUN) always ## Print a Kubernetes Job that runs a backend's cases: make manifest-deepspeed GPUS=2 REGISTRY=host/name
	@$(PY) -m scripts manifest "$$KIT_NAME"

build-%: $(RUN) always ## Build a backend's image; build-all builds every image (STACK=… one stack only)
	@$(PY) -m scripts build "$$KIT_NAME"

verify-%: $(RUN) always ## Compare the whole content of an image with its pins and lock; one line per difference
	@$(PY) -m scripts verify "$$KIT_NAME"

rebuild-%: $(RUN) always ## Build an image twice without a cache and compare the two builds, layer by layer
	@$(PY) -m scripts rebuild "$$KIT_NAME"

sbom-%: $(SITE) always ## Write an image's bill of materials (CycloneDX) to reports/sbom
	@$(PY) -m scripts sbom "$$KIT_NAME"

.PHONY: images
images: $(RUN) ## List the images: built, stale or missing, size, shared layers, age
	@$(PY) -m scripts images

.PHONY: archive
archive: $(RUN) ## Archive the built images and the files of their locks in archives/ (ONLY=images,wheels,tools,kit STACK= BACKEND= PIECES=64MB)
	@$(PY) -m scripts archive

.PHONY: restore
restore: $(RUN) ## Restore the images of archives/ (or ARCHIVES=folder) without a network (ENGINE=docker|podman|apptainer|pyxis)
	@$(PY) -m scripts restore

.PHONY: push pull
push: $(RUN) ## Push built images to a registry: make push REGISTRY=host/name (STACK= BACKEND=)
	@$(PY) -m scripts push

pull: $(RUN) ## Pull images from a registry by their digests, and verify them
	@$(PY) -m scripts pull

.PHONY: models verify-models lock-models
models: $(RUN) ## Fetch the articles' models at their commits (ARTICLE=… one article; HF_TOKEN for gated ones)
	@$(PY) -m scripts models

verify-models: $(RUN) ## Check every file of the models on this machine; a wrong file is set aside and fetched again
	@$(PY) -m scripts verify-models

lock-models: $(RUN) ## Ask the hub for the files of each model's commit, into docker/models.json (needs the network)
	@$(PY) -m scripts lock-models

.PHONY: report
report: $(if $(filter html,$(FORMAT)),$(SITE),$(RUN)) ## Write reports/REPORT.md, its plots and the README's headlines from reports/runs (FORMAT=html: a site too)
	@$(PY) -m scripts report

.PHONY: publish
publish: $(SITE) ## Put the report's site on a branch of a repository: make publish REMOTE=… (BRANCH=gh-pages)
	@$(PY) -m scripts publish

.PHONY: bundle verify-bundle
bundle: $(RUN) ## Pack results, report, pins and locks into one archive with checksums
	@$(PY) -m scripts bundle

verify-bundle: $(RUN) ## Check an archive of make bundle: make verify-bundle BUNDLE=llm-repro-bundle.tar.gz (FORMAT=json: one line for a program)
	@$(PY) -m scripts verify-bundle

.PHONY: compare
compare: $(RUN) ## Set two runs, folders or git revisions side by side: make compare A=HEAD~1 B=reports/runs
	@$(PY) -m scripts compare

.PHONY: lock
lock: $(RUN) ## Resolve docker/pins.toml into hashed requirements; needs the network (BACKEND=… one backend)
	@$(PY) -m scripts lock

.PHONY: render
render: $(RUN) ## Write Dockerfiles, compose.yaml and the tables of docker/README.md from docker/pins.toml
	@$(PY) -m scripts render

.PHONY: check
check: $(DEV) ## Fail where a generated file, a lock or the style differs from what it should be
	@test -z "$$KIT_TYPED" || { echo "error: check takes no variables; leave $${KIT_TYPED%% *} out" >&2; exit 2; }
	@$(PY) -m scripts render --check
	@$(PY) -m scripts report --check
	@$(PY) -m ruff check --quiet .
	@$(PY) -m ruff format --check --quiet . || { echo "error: the style differs; type .venv/bin/ruff format ." >&2; exit 1; }
	@$(PY) -m mypy --no-error-summary
	@.venv/bin/lint-imports > /dev/null || .venv/bin/lint-imports --no-logo
	@echo "check: generated files, locks and style are as they should be"

.PHONY: test test-fast test-all test-site
TESTS := -m pytest -c tests/pytest.ini --no-loadscope-reorder --numprocesses

# Three processes for two cores, because the fast tests wait half of their time.
test-fast: $(DEV) ## Run the tests that need neither torch nor Docker (a minute)
	@$(PY) $(TESTS) 3 -m "not full and not slow" tests/unit

test: $(DEV) ## Run the tests: the fast ones, those with real tiny models, and those that need Docker
	@$(PY) $(TESTS) 2 -m "not full"

test-all: $(DEV) ## Run the tests as CI does: those of make test, the longest ones, and repeats at a larger scale
	@$(PY) $(TESTS) 2

test-site: $(DEV) ## Open the site of the committed results in a headless Chromium (Debian: chromium-headless-shell)
	@KIT_NEEDS_BROWSER=1 $(PY) -m pytest -c tests/pytest.ini tests/site

.PHONY: chaos
chaos: $(DEV) ## Inject faults into whole runs, type a user's next command after each, and count what was lost (SEED= FAULTS= KIND=)
	@$(PY) -m tests.chaos

.PHONY: doctor
doctor: $(RUN) ## Is this machine ready? GPUs, stacks, Docker, memory, disk, a line each, and what to type next (MODELS= RUNS=)
	@$(PY) -m scripts doctor

.PHONY: clocks
clocks: $(RUN) ## Time tiny models by the articles' own loops and by the kit, in turn; print the ratios
	@$(PY) -m scripts clocks

.PHONY: calibrate
calibrate: $(RUN) ## Time an empty call and a fixed kernel on this machine, in five processes each; print the noise floor (DEVICE= ENGINE= STACK=)
	@$(PY) -m scripts calibrate

.PHONY: clean
clean: ## Remove environments, caches and the demo's report; models and results stay
	@! test -d .venv || $(PYTHON) -m scripts.commands.clean
	rm -rf .venv .envs .hypothesis .pytest_cache tests/.pytest_cache .ruff_cache bench/.ruff_cache .mypy_cache .import_linter_cache reports/demo
	find . -name __pycache__ -not -path './.git/*' -exec rm -rf {} +
