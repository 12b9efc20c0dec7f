# `make` alone says what there is. Needs Go and nothing else; the Kafka tests also need Java and Maven, those of the page Chromium.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

# The version in the binary comes from git; the date is that of the commit, so that a build can be repeated.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
DATE    ?= $(shell TZ=UTC0 git log -1 --date=iso-strict-local --format=%cd 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT) -X main.date=$(DATE)
# The same bytes wherever it is built. The linker drops what debuggers need, so the compiler does not write it either. The
# control plane of the tests is compiled with the same flags: most of its packages are also packages of the bridge.
RELEASE := -trimpath -buildvcs=false -gcflags=all=-dwarf=false -ldflags '$(LDFLAGS)'
IMAGE ?= bin/image
override IMAGE := $(abspath $(IMAGE))

# The tools and their versions stand in tools/go.mod, apart from what the bridge itself is built of.
TOOL := go tool -modfile=$(CURDIR)/tools/go.mod

# The race detector needs a C compiler.
RACE := $(if $(shell command -v $$(go env CC) 2>/dev/null),-race)

# "./..." stops at the next go.mod. Not all of test/controlplane: that would compile Kubernetes with the race detector.
# The first one's tests mostly wait; those of tools compile meanwhile, with the lowest priority.
TESTED := . tools test/controlplane/internal

# With CI set a skipped test is an error, but for conformance cases that a destination can't have (standard output has
# no server to stop), whose reasons begin with "the destination". And the Python examples, where there is no Python, or
# no way to its packages.
MAY_SKIP := : the (destination|Python examples need)

# For tests, what they build, and lint. A fresh clone finds compiled packages in the build cache.
TESTBUILD := GOFLAGS="$$(go env GOFLAGS) -trimpath -gcflags=all=-dwarf=false"
# Three packages at a time: those that take long drive whole servers, and mostly wait. They start first, so that no CPU is
# idle in the end. Lint has run vet. Results of earlier runs do not count: the go command does not know what depends on
# the programs that tests build.
FIRST := ./test/e2e ./pkg/sinks/kafka ./test/chart ./pkg/sinks/nats ./test/chaos ./internal/page ./test/cluster ./test/kafka
TESTFLAGS ?=
# These build a release, with four programs, and the image: only in make test-long.
override TESTFLAGS := $(RACE) -ldflags=-s -vet=off -timeout=30m -p=3 -count=1 \
	$(if $(DELTABRIDGE_TEST_LONG),,-skip='^(TestRelease|TestImage)$$') $(TESTFLAGS)
FUZZTIME ?= 20s
BENCH ?= .
COUNT ?= 6

.PHONY: help
help: ## Show this
	@echo 'make TARGET [NAME=value ...]'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: ## Build bin/bridge
	CGO_ENABLED=0 go build $(RELEASE) -o bin/bridge ./cmd/bridge

# Builds DIR/OS_ARCH/bridge for each OS_ARCH: $(call programs,DIR,OS_ARCH...)
define programs
for p in $(2); do \
	CGO_ENABLED=0 GOOS=$${p%_*} GOARCH=$${p#*_} GOAMD64=v1 GOARM64=v8.0 go build $(RELEASE) -o $(1)/$$p/bridge ./cmd/bridge; \
done
endef

.PHONY: image
image: ## Build the OCI image for amd64 and arm64, with SBOMs: IMAGE (bin/image), no container engine needed
	@$(call programs,$(IMAGE).bin,linux_amd64 linux_arm64)
	@go -C tools run -buildvcs=false ./image -dir $(CURDIR) -bin $(IMAGE).bin -out $(IMAGE) -version '$(VERSION)' -commit '$(COMMIT)' -date '$(DATE)'

# From nothing: two copies, two caches. The tests do the same with one cache.
.PHONY: reproducible
reproducible: ## Build the image twice, in different folders and from empty caches, and compare: takes minutes
	@work=$$(mktemp -d); trap 'chmod -R u+w "$$work"; rm -rf "$$work"' EXIT; \
	for copy in one another/place; do \
		mkdir -p "$$work/$$copy"; git ls-files -z -co --exclude-standard | xargs -0 cp --parents -t "$$work/$$copy"; \
	done; \
	for copy in one another/place; do \
		GOCACHE="$$work/cache/$$copy" $(MAKE) -s -C "$$work/$$copy" image IMAGE=bin/image VERSION='$(VERSION)' COMMIT='$(COMMIT)' DATE='$(DATE)'; \
		rm -rf "$$work/cache"; \
	done; \
	diff -r "$$work/one/bin/image" "$$work/another/place/bin/image"; \
	echo "the same, byte for byte:"; cat "$$work/one/bin/image/layout/index.json"; echo

# CONTRIBUTING.md says how to release. Building takes minutes, so the check comes first.
RELEASE_TOOL = go -C tools run -buildvcs=false ./release -dir $(CURDIR) -version '$(VERSION)' -commit '$(COMMIT)' -date '$(DATE)'
.PHONY: release
release: bin/tools/helm ## Build the release of the checked-out tag in bin/release, without a network
	@$(RELEASE_TOOL) -check
	@rm -rf bin/release
	@$(MAKE) -s image IMAGE=bin/release/image
	@$(call programs,bin/release/image.bin,darwin_amd64 darwin_arm64)
	@$(RELEASE_TOOL) -bin $(CURDIR)/bin/release/image.bin -image $(CURDIR)/bin/release/image -helm $(CURDIR)/bin/tools/helm -out $(CURDIR)/bin/release

REGISTRY := ghcr.io/deltabridge
.PHONY: publish
publish: release ## Upload the release of the checked-out tag, and sign it: requires cosign and gh
	@if gh release view $(VERSION) >/dev/null 2>&1; then echo '$(VERSION) is already published'; exit 1; fi
	image=$$($(TOOL) crane push bin/release/image/layout $(REGISTRY)/deltabridge:$(VERSION:v%=%)); \
	chart=$$($(TOOL) crane push bin/release/chart $(REGISTRY)/charts/deltabridge:$(VERSION:v%=%)); \
	cosign sign --yes "$$image" "$$chart"
	cosign sign-blob --yes --bundle bin/release/checksums.txt.sigstore.json bin/release/assets/checksums.txt
	gh release create $(VERSION) --verify-tag --title $(VERSION) --notes-file bin/release/notes.md \
		bin/release/assets/* bin/release/checksums.txt.sigstore.json

.PHONY: chart
chart: chart-tools ## Bring what is generated of the Helm chart up to date: schema, README.md; and test it
	go test ./test/chart -run=TestSchemaIsCurrent -update
	go test ./test/chart -update

# Programs that the tests of the chart run, each in a module of its own. The tag leaves out most of what promtool does
# not need here.
CHART_TOOLS := helm=helm.sh/helm/v4/cmd/helm helmdocs=github.com/norwoodj/helm-docs/cmd/helm-docs promtool=github.com/prometheus/prometheus/cmd/promtool
.PHONY: chart-tools
chart-tools: $(foreach t,$(CHART_TOOLS),bin/tools/$(firstword $(subst =, ,$(t))))

# "go run" finds linked programs in Go's cache, "go build" does not.
bin/tools/%: tools/%/go.mod
	@echo 'compiling $*'
	@mkdir -p $(@D)
	CGO_ENABLED=0 go -C tools/$* run -exec=cp -buildvcs=false -tags remove_all_sd $(patsubst $*=%,%,$(filter $*=%,$(CHART_TOOLS))) $(CURDIR)/$@

.PHONY: licenses
licenses: ## Check the licenses of what is in the program, and write THIRD_PARTY.md
	@go -C tools run -buildvcs=false ./licenses -dir $(CURDIR) -update

.PHONY: run
run: ## Stream a cluster to an embedded JetStream, and show it: a local one, or that of KUBECONFIG
	@echo 'building the bridge: the first time this takes about two minutes'
	@CGO_ENABLED=0 go build $(RELEASE) -o bin/ ./cmd/bridge ./test/demo
	@bin/demo -bridge bin/bridge

.PHONY: test
# Programs with the race detector wait for a second at their end, by default.
test: export GORACE := atexit_sleep_ms=50
# Less work for the garbage collector, more memory. Tests that run the bridge leave it out of the environment.
test: export GOGC := 400
test: ## Everything that must hold: check, then all tests
	@$(MAKE) -s -j2 prebuild check bin/testreport
	@$(if $(RACE),,echo 'testing without the race detector')
	@echo 'compiling the tests'
	@# On all CPUs, whereas the tests run one by one. What does not compile fails there.
	@$(TESTBUILD) go list -e $(RACE) -deps -test -export ./... >/dev/null 2>&1 || true
	$(TESTBUILD) bin/testreport $(addprefix -first=,$(FIRST)) $(if $(CI),-no-skips -may-skip='$(MAY_SKIP)') $(TESTED) -- $(TESTFLAGS)

# The same cases, with the counts and durations that the documentation names, and the ones that take too long for `make
# test`. Without the race detector, so that time and memory can be measured.
.PHONY: test-long
test-long: export DELTABRIDGE_TEST_LONG := 1
test-long: ## All tests with their full counts and durations: takes about two hours
	$(MAKE) test RACE= TESTFLAGS='$(filter-out -race -skip=%,$(TESTFLAGS)) -timeout=180m -p=1'

# Not part of `make test`: it requires root. Where it cannot run, it says why.
.PHONY: test-node
test-node: ## Install the chart on a real Kubernetes node, upgrade it and break it: requires Linux, root and Debian's packages
	DELTABRIDGE_TEST_NODE=1 go test ./test/node -count=1 -v -timeout=90m

# Not part of `make test`: it compiles older Kubernetes API servers.
ONLY ?=
.PHONY: test-matrix
test-matrix: ## Test with the older servers in docs/support.md, and write the date there: ONLY=REGEXP selects rows
	go run ./test/matrix -only='$(ONLY)'

# The control plane of the tests: the first time this takes minutes, longer than a test may. It shows its progress.
.PHONY: prebuild
prebuild:
	go run ./test/cluster/prebuild
	@$(MAKE) -s chart-tools

.PHONY: check
check: lint vuln size ## Formatting, static analysis, import rules, known vulnerabilities, size

# Lines of Go without comments and blank lines. Tests do not count, nor what only tests use.
.PHONY: size
size:
	@find cmd pkg internal -name '*.go' ! -name '*_test.go' ! -path 'pkg/sinks/sinktest/*' ! -path 'internal/statelog/logtest/*' | sort | xargs awk ' \
	!/^[[:space:]]*($$|\/\/)/ { folder = FILENAME; sub(/\/[^\/]*$$/, "", folder); lines[folder]++; all++ } \
	END { for (folder in lines) if (lines[folder] > 2000) printf "size: %6d lines in %s\n", lines[folder], folder; \
	      printf "size: %6d lines of Go in cmd, pkg and internal\n", all }'

# These look into every dependency: for Kubernetes itself that takes 6 GB of memory.
WHOLE_PROGRAM := bodyclose,nilnesserr,staticcheck,unparam,unused

# As test/cluster/build.go compiles it: otherwise all of Kubernetes would be compiled again.
CONTROLPLANE := CGO_ENABLED=0 GOFLAGS="-trimpath -gcflags=all=-dwarf=false '-gcflags=k8s.io/kubernetes/...=-dwarf=false -l'"

# A fresh clone finds earlier results, since they do not depend on the folder.
.PHONY: lint
lint: no-sleep
	@lint=$$($(TOOL) -n golangci-lint); \
	echo 'lint: the main module'; $(TESTBUILD) $$lint run ./...; \
	echo 'lint: tools'; (cd tools && $(TESTBUILD) $$lint run ./...); \
	echo 'lint: test/controlplane'; (cd test/controlplane && $(CONTROLPLANE) $$lint run --disable $(WHOLE_PROGRAM) ./...)

# Sleeping makes a test slow or flaky, but for a synctest bubble, where it is how time passes.
.PHONY: no-sleep
no-sleep:
	@files=$$(grep -rl --include='*_test.go' 'time\.Sleep(' bench cmd internal pkg test | xargs -r grep -L '"testing/synctest"' || true); \
	if [[ -n $$files ]]; then \
		echo "time.Sleep in a test: use testing/synctest, or poll for the thing itself with a deadline"; \
		echo "$$files"; exit 1; \
	fi

# Without a way to the database of vulnerabilities nothing can be said, and nothing is wrong.
.PHONY: vuln
vuln:
	@if $(TOOL) govulncheck -version | grep -q '^DB updated'; then \
		echo 'govulncheck'; $(TOOL) govulncheck ./...; \
	else \
		echo 'govulncheck skipped: database unreachable'; \
	fi

.PHONY: fmt
fmt: ## Format the code
	$(TOOL) golangci-lint fmt

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME (20s)
	@grep -rE --include='*_test.go' '^func Fuzz[[:alnum:]_]*\(' cmd internal pkg | \
	sed -E 's|^(.*)/[^/]*:func (Fuzz[[:alnum:]_]*).*|\1 \2|' | sort | \
	while read -r package target; do \
		echo "$$package $$target"; \
		go test -run='^$$' -fuzz="^$$target\$$" -fuzztime=$(FUZZTIME) "./$$package" </dev/null; \
	done

.PHONY: cover
cover: ## Test with coverage: bin/cover.html
	@mkdir -p bin
	go test -timeout=15m -p=1 -coverpkg=./cmd/...,./internal/...,./pkg/... -coverprofile=bin/cover.out ./...
	go tool cover -html=bin/cover.out -o bin/cover.html
	@go tool cover -func=bin/cover.out | tail -1

# What `make bench` takes: -scenario=replay,churn -runs=5 -scale=0.1 -profile=bin/profiles
BENCHFLAGS ?=

# DURATION is for how long new runs begin; SEED makes the first one that of an earlier test, LANES is how many there are at once.
DURATION ?= 10m
SEED ?= 0
LANES ?= 2

.PHONY: chaos
chaos: ## Random histories and faults for DURATION (10m), judged by etcd's history: SEED, LANES
	go run ./test/cluster/prebuild
	go test ./test/chaos -run='TestChaos$$' -count=1 -timeout=0 -parallel=$(LANES) -v -chaos.duration=$(DURATION) -chaos.seed=$(SEED) -chaos.lanes=$(LANES) -chaos.kafka=auto -chaos.runs=0 -chaos.shrink=40

.PHONY: chaos-mutants
chaos-mutants: ## Break the bridge on purpose, in each way that is there, and show that the chaos test finds it within ten minutes
	go run ./test/cluster/prebuild
	go test -tags chaosmutants ./test/chaos -run='TestMutants$$' -count=1 -timeout=0 -v -chaos.mutants=all -chaos.seed=$(SEED)

.PHONY: bench
bench: build ## Measure the bridge beside the cheapest conceivable one (BENCHFLAGS: see bin/bench -h), and write bench/RESULTS.md
	go build -buildvcs=false -o bin/floor ./bench/floor
	go build -buildvcs=false -o bin/bench ./bench
	bin/bench -bridge=bin/bridge -floor=bin/floor -results=bench/RESULTS.md $(BENCHFLAGS)

.PHONY: microbench
microbench: ## Run the Go benchmarks named BENCH (.), COUNT (6) times, and compare with bin/bench.old if it is there
	@mkdir -p bin
	go test -run='^$$' -bench='$(BENCH)' -benchmem -count=$(COUNT) -p=1 -timeout=60m ./pkg/... | tee bin/bench.new
	$(TOOL) benchstat $(wildcard bin/bench.old) bin/bench.new

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin

bin/testreport: $(wildcard tools/testreport/*.go) tools/go.mod
	go -C tools build -buildvcs=false -o ../bin/testreport ./testreport
