SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

GO        ?= go
TIMEOUT   ?= 10m
FUZZTIME  ?= 30s
CHAOS_FOR ?= 30m
COUNT     ?= 10
# More flags for `go test`, as in `make test TESTFLAGS='-v -run Mutex'`.
TESTFLAGS ?=

# Modules of their own, so that what they need never reaches the library's
# users. go.work ties those in TIED to the library; bench and examples
# have a workspace each, as the integrations do, so that it does not apply to them. The tools are not
# tested and not linted. Those apart have targets of their own: packaging needs root, and
# the comparison with client-go compiles all of it.
APART  := ./packaging ./integrations/leaderelection/clientgotest
NESTED := $(shell find . -mindepth 2 -name go.mod -not -path './internal/tools/*' -exec dirname {} \; | sort)

# The modules that go.work ties to the library: the command, and the stores with large clients.
STORES := $(patsubst %/go.mod,./%,$(wildcard driver/*/go.mod))
TIED   := ./cmd/leasehold $(STORES)

# Only deps and the targets that build something to use need a network. All others fail for
# reasons of their own.
PROXY := $(GOPROXY)
export GOPROXY := off
build man dist image tidy: export GOPROXY := $(PROXY)

# The race detector needs cgo, whatever the environment says. make lint runs vet with all of its
# checks. A process with the race detector waits a second before it ends, for goroutines that
# are still running: goleak finds those.
RACE := GORACE=atexit_sleep_ms=0 CGO_ENABLED=1 $(GO) test -race -vet=off

.PHONY: help
help: ## Print this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build everything, the command into bin/
	$(GO) build ./...
	@mkdir -p bin
	$(GO) build -tags grpcnotrace -o bin/ ./cmd/leasehold

.PHONY: deps
deps: ## Download what make test and make lint need and is missing (Debian, Go modules)
	@GOPROXY='$(PROXY)' .ci/deps test lint

.PHONY: deps-test deps-lint deps-night
deps-test deps-lint:
	@GOPROXY='$(PROXY)' .ci/deps $(@:deps-%=%)
deps-night:
	@GOPROXY='$(PROXY)' .ci/deps test lint night

# FIRST are the packages that take longest. go test starts packages in the order of its arguments,
# and a long package that starts last runs alone. Packages that wait alternate with packages that
# compute.
FIRST := ./cmd/leasehold/internal/cli ./driver/postgresdriver ./internal/test/library ./driver/filedriver ./driver/httpdriver ./internal/redisroom

# Chaos uses all of the machine, and tests next to it would miss their time limits.
BUT_CHAOS := $(GO) list $(FIRST) ./cmd/leasehold/... ./... | grep -v /internal/chaos

# COUNTED are the packages that count and explore. make test runs them only without the race
# detector, which allocates itself and is too slow to explore far. They run next to the other
# packages, and so do STORES, whose clients the race detector makes slow: it sees them at night.
COUNTED := ./internal/test/costs ./internal/test/explore ./internal/test/mutate/source ./driver/roomdriver

# Packages and tests wait most of the time, for servers and for leases to end.
PACKAGES ?= 4
TESTS    ?= 4
# Live tests run one package at a time.
LIVE     ?= 10

.PHONY: test
test: deps-test ## Run the tests that find faults quickly, with the race detector: two to three minutes on two cores
	@$(MAKE) --no-print-directory -k -j 2 test-race test-counts

# Rarer collections of garbage save a tenth of the time of packages that compute.
.PHONY: test-race test-counts test-large
test-race test-counts test-large: export GOGC := 400
test-race:
	@packages=$$($(BUT_CHAOS) | grep -v $(COUNTED:./%=-e /%$$)); set -x; result=0; \
	$(RACE) -short -p $(PACKAGES) -parallel $(TESTS) -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) $$packages || result=1; \
	$(MAKE) --no-print-directory test-large; exit $$result
test-counts:
	$(GO) test -vet=off -short -p 2 -count=1 -timeout $(TIMEOUT) $(COUNTED) ./internal/test/matrix
	$(GO) test -vet=off -short -p 2 -count=1 -timeout $(TIMEOUT) $(STORES:%=%/...)
	$(GO) test -vet=off -short -count=1 -timeout $(TIMEOUT) -run Microscope ./internal/redisroom
	$(GO) test -vet=off -short -count=1 -timeout $(TIMEOUT) -run 'TestScripts|TestService' ./internal/test/locktest

# LARGE are tests of large numbers and of memory, which skip.Racing leaves to test-large.
LARGE := 'TestKeeper_ANodeThatHangs|TestKeeper_AStoreThatFallsBehind|TestIds_|TestGateway_HR_C5_OnlyAService|TestOpen_ErrorsShowNoPart|TestCases|TestPromises|TestDocuments|TestShort|LeaseIsSmall|AWaitingClientIsCheap'

test-large:
	$(GO) test -vet=off -short -p 2 -count=1 -timeout $(TIMEOUT) -run $(LARGE) . ./internal/session ./driver/filedriver ./driver/httpdriver ./cmd/leasehold/internal/stores ./internal/test/library ./server

# SHORT is empty at night: the live tests then run at full length.
SHORT := -short

.PHONY: live
live: deps-test ## Test on real servers, processes and clocks, one package at a time and without the race detector: some five minutes
	$(GO) run ./internal/test/live/run -vet=off $(SHORT) -parallel $(LIVE) -timeout $(TIMEOUT) $(TESTFLAGS)

.PHONY: test-all
test-all: SHORT :=
test-all: TIMEOUT := 20m
test-all: test live test-long nested cross floors test-32 ## Run all tests but those of packages and the long searches

.PHONY: test-long
test-long: TIMEOUT := 20m
test-long: deps-night ## Run at full length what make test plays a part of, and let every store suffer for a while
	$(RACE) -p $(LONGPACKAGES) -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) $(LONG)
	@# make live plays it without the race detector.
	LEASEHOLD_LIVE=1 $(RACE) -p 1 -count=1 -timeout $(TIMEOUT) -run 'TestConformance$$' $(STORES:%=%/...)
	@# Chaos uses all of the machine.
	$(RACE) -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) ./cmd/leasehold/internal/chaos
	$(GO) test -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) ./internal/test/matrix ./internal/test/explore
	@# These have one goroutine, or compare times.
	LEASEHOLD_LIVE=1 $(GO) test -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) -run 'Microscope|TestCost|TestScripts' ./internal/redisroom

# The packages of which -short leaves something out, but for those that run alone, and the
# longest first.
LONG := ./cmd/leasehold/internal/cli ./internal/redisroom ./driver/postgresdriver ./driver/filedriver ./driver/quorumdriver ./internal/test/library ./internal/test/locktest ./driver/httpdriver ./internal/session ./driver/etcddriver ./driver/mysqldriver ./driver/natsdriver ./driver/s3driver $(COUNTED)
LONGPACKAGES ?= 3

.PHONY: nested
nested: deps-night ## Test the modules beside the library: the examples, the benchmark and the integrations
	@for dir in $(filter-out $(TIED) $(APART),$(NESTED)); do \
		echo "cd $$dir && go test ./..."; \
		(cd $$dir && $(RACE) -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) ./...); \
	done

# Inside the workspace the library is tested with the versions that the command
# requires, which are the newest. Its own go.mod states the oldest.
.PHONY: floors
floors: export GOWORK = off
floors: deps-night ## Test the library with the oldest versions that it requires
	$(GO) vet ./...
	@packages=$$($(GO) list ./... | grep -v -E '/internal/test/costs$$'); set -x; \
	$(GO) test -short -p $(PACKAGES) -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) $$packages

# The race detector, which is C, does not exist there, and chaos and costs are
# about time, not about numbers.
.PHONY: test-32
test-32: export CGO_ENABLED = 0
test-32: export GOARCH = 386
test-32: deps-night ## Vet and test everything that needs no C on 32 bits
	$(GO) vet ./...
	@packages=$$($(BUT_CHAOS) | grep -v '/internal/test/costs$$'); set -x; \
	$(GO) test -short -p $(PACKAGES) -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) $$packages
	@for dir in $(filter-out $(APART),$(NESTED)); do (cd $$dir && $(GO) vet ./...); done

.PHONY: vet-others
vet-others: deps-test ## Compile and vet for 32 bits and for macOS, tests included
	CGO_ENABLED=0 GOARCH=386 $(GO) vet ./... ./cmd/leasehold/...
	CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 $(GO) vet ./... ./cmd/leasehold/...

.PHONY: race
race: deps-test ## Run all tests COUNT times, in changing order
	@for dir in . $(TIED); do \
		(cd $$dir && $(RACE) -count=$(COUNT) -shuffle=on -timeout 60m $(TESTFLAGS) ./...); \
	done

.PHONY: soak
soak: deps-test ## Run the long tests, which look for rare failures
	$(GO) test -tags soak -run Soak -timeout 60m $(TESTFLAGS) ./...

.PHONY: explore
explore: deps-test ## Try everything that a few parties can do with a lock, two or three steps further
	$(GO) test -count=1 -v -timeout 0 -run TestExplore $(TESTFLAGS) ./internal/test/explore -explore.deep

.PHONY: chaos
chaos: deps-night ## Let every store suffer for CHAOS_FOR, and judge what its clients saw
	@# The package stands first, since TESTFLAGS may have flags of its own.
	$(GO) test ./cmd/leasehold/internal/chaos -count=1 -v -timeout 0 -run TestChaos -chaos.for=$(CHAOS_FOR) -chaos.pause=300ms $(TESTFLAGS)

# How many situations of each world the microscope goes on from, and in how many of
# them everything fails in turn.
STATES ?= 5000
FAULTS ?= 300

.PHONY: microscope
microscope: deps-test ## Run the Redis scripts in an interpreter, from STATES situations, with FAULTS
	LEASEHOLD_LIVE=1 $(GO) test -count=1 -v -timeout 0 -run Microscope $(TESTFLAGS) ./internal/redisroom -microscope.states=$(STATES) -microscope.faults=$(FAULTS)

# What make mutants changes, which part of all changes it tries, and after how long it
# begins no other, for the scripts and for Go; 0 for as long as it takes.
MUTATE      ?= room timing session scripts
PART        ?= 1
MUTANTS_FOR ?= 0

.PHONY: house
house: ## Count lines, files, words and unclear words, and compare them with internal/test/house/limits.txt
	@$(GO) run ./internal/test/house

.PHONY: mutants
mutants: deps-test ## Change conditions and constants of MUTATE one at a time, and run the tests: half an hour each for the Go and the scripts
	$(if $(filter scripts,$(MUTATE)),$(GO) test -count=1 -v -timeout 0 -run Microscope_Mutants ./internal/redisroom -microscope.mutants=$(PART) -microscope.mutants.for=$(MUTANTS_FOR))
	$(if $(filter-out scripts,$(MUTATE)),$(GO) run ./internal/test/mutate -part $(PART) -for $(MUTANTS_FOR) $(filter-out scripts,$(MUTATE)))

.PHONY: test-redis
test-redis: deps-test ## Run the tests that need Redis against LEASEHOLD_REDIS_SERVER, the path of a redis-server or valkey-server
	@"$${LEASEHOLD_REDIS_SERVER:-redis-server}" --version
	$(RACE) -short -p $(PACKAGES) -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) $(REDIS)
	@"$${LEASEHOLD_REDIS_SERVER:-redis-server}" --version | sed 's/^/passed against: /'

# The packages whose tests start a Redis server.
REDIS = $$(grep -rl --include='*_test.go' internal/test/redistest . | grep -v -E '^./(bench|examples|integrations|cmd/leasehold/internal/chaos)/' | xargs -n1 dirname | sort -u)

.PHONY: test-postgres
test-postgres: deps-test ## Run the tests that need PostgreSQL against LEASEHOLD_POSTGRES_SERVER, the path of a postgres with its programs beside it
	@"$${LEASEHOLD_POSTGRES_SERVER:?is the path of a postgres}" --version
	$(RACE) -short -p $(PACKAGES) -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) $(POSTGRES)
	@"$$LEASEHOLD_POSTGRES_SERVER" --version | sed 's/^/passed against: /'

# The packages whose tests start a PostgreSQL server.
POSTGRES = $$(grep -rl --include='*_test.go' internal/test/postgrestest . | grep -v -E '^./(bench|examples|integrations|cmd/leasehold/internal/chaos)/' | xargs -n1 dirname | sort -u)

.PHONY: fuzz
fuzz: deps-test ## Run every fuzz target for FUZZTIME
	@.ci/fuzz $(FUZZTIME)

.PHONY: promtool
promtool: deps-night ## Have promtool check the alerts and the dashboard
	$(GO) test -tags night -count=1 ./internal/test/dashboards

.PHONY: nightly
nightly: deps-night ## Search for rare failures for a night (root), with everything that does so
	@# Every step runs, also after a red one.
	$(MAKE) -k FUZZTIME=10m test-all lint packages promtool client-go explore microscope soak chaos fuzz

.PHONY: screenshots
screenshots: deps-night ## Make the pictures of the page in docs/
	cd server/browsertest && $(GO) test -count=1 -run TestScreenshots . -screenshots=$(CURDIR)/docs

.PHONY: bench
bench: deps-night ## Compare with other libraries
	@if [ -d bench ]; then cd bench && $(GO) run .; else echo "There is no bench module."; fi

.PHONY: costs
costs: deps-test ## Print what each kind of lock costs the server
	$(GO) test -count=1 -v -run TestCost_W9 ./internal/redisroom

.PHONY: cover
cover: deps-test ## Measure how much of the code the tests reach
	$(GO) test -coverpkg=./... -coverprofile=coverage.out -timeout $(TIMEOUT) ./...
	$(GO) tool cover -func=coverage.out | tail -1

.PHONY: cross
cross: deps-test ## Build for Linux, macOS and Windows, and for 32 bits
	@export CGO_ENABLED=0; \
	for target in linux/amd64 linux/arm64 linux/386 darwin/arm64 windows/amd64; do \
		echo "build for $$target"; \
		export GOOS=$${target%/*} GOARCH=$${target#*/}; \
		$(GO) build ./...; \
		if [ $$GOOS != windows ]; then $(GO) build -o /dev/null ./cmd/leasehold; fi; \
	done

.PHONY: lint
lint: deps-lint ## Check format, vet, linters and go.mod
	@# bench is not held to be tidy: tidy asks for what the tests of the peers need.
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "gofmt is needed for:"; echo "$$unformatted"; exit 1; fi
	@linter=$$(.ci/linter); red=; \
	for dir in . $(filter-out $(APART),$(NESTED)); do \
		cd $(CURDIR)/$$dir; \
		echo "lint $$dir"; \
		$(GO) vet ./... || red=1; \
		"$$linter" run ./... || red=1; \
		case $$dir in ./bench) ;; *) $(CURDIR)/.ci/tidy -diff || red=1 ;; esac; \
	done; \
	test -z "$$red"

.PHONY: tidy
tidy: ## Write what go.mod and go.sum of the modules lack, but for the benchmark's
	@for dir in $(filter-out ./bench,. $(NESTED)); do (cd $$dir && $(CURDIR)/.ci/tidy); done

.PHONY: man
man: ## Write the man pages and the completions of shells to dist/
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null)} $(GO) run ./cmd/leasehold/internal/manpages dist

# VERSION=v0.2.0 instead of the last tag, ARCHES=amd64 instead of all.
.PHONY: dist
dist: ## Build what a release consists of into dist/
	packaging/build dist

.PHONY: image
image: ## Build the container image from scratch, as dist/leasehold-image.tar
	@mkdir -p dist
	packaging/image/build dist/leasehold-image.tar

.PHONY: packages
packages: deps-night ## Build packages and the image, install and run them, and check manifests and workflows (root)
	shellcheck .ci/* packaging/build packaging/image/build packaging/scripts/*
	$$($(RELEASER) actionlint) -no-color
	cd packaging && $(GO) vet ./...
	cd packaging && $(GO) test -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) ./...

.PHONY: client-go
client-go: deps-night ## Compare the leader election with that of client-go, which takes minutes to compile
	cd integrations/leaderelection/clientgotest && $(GO) vet ./... && $(GO) test -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) ./...

# What a release needs is a module of its own beside the linter, whose versions it would change.
RELEASER := GOWORK=off $(GO) tool -n -modfile=$(CURDIR)/internal/tools/release/go.mod
