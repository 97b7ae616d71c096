SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

GO        ?= go
TIMEOUT   ?= 15m
FUZZTIME  ?= 30s
CHAOS_FOR ?= 30m
COUNT     ?= 10
# More flags for `go test`, as in `make test TESTFLAGS='-v -run Mutex'`.
TESTFLAGS ?=

# Modules of their own, so that what they need never reaches the library's
# users. go.work ties the command to the library beside it; bench and examples
# have a workspace each, as the integrations do, so that it does not apply to them. The tools are not
# tested and not linted. Those apart have targets of their own: packaging needs root, and
# the comparison with client-go compiles all of it.
APART  := ./packaging ./integrations/leaderelection/clientgotest
NESTED := $(shell find . -mindepth 2 -name go.mod -not -path './internal/tools/*' -exec dirname {} \; | sort)

# The linter is built from source at the version in internal/tools/go.mod, and
# runs in the workspace of what it reads.
LINTER := GOWORK=off $(GO) tool -n -modfile=$(CURDIR)/internal/tools/go.mod golangci-lint

# The race detector is linked with cgo, whatever the environment says. Vet reads the
# same # with it as without, and is run by make lint, with all of its checks. Each process would
# wait for a second before it ends, for races of goroutines that nobody waits for: goleak
# finds those.
RACE := GORACE=atexit_sleep_ms=0 CGO_ENABLED=1 $(GO) test -race -vet=off

.PHONY: help
help: ## Print this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build everything, the command into bin/
	$(GO) build ./...
	@mkdir -p bin
	$(GO) build -o bin/ ./cmd/leasehold

.PHONY: deps
deps: ## Install what the tests need besides Go, if it is missing (Debian)
	@.ci/deps

# Those that take longest, which is waiting for servers and for the ends of leases, and among
# them those that mostly wait beside those that keep the machine busy. They begin first, in
# this order, as `go test` takes its arguments: or else the end of a run is one of them alone.
FIRST := ./internal/locktest ./cmd/leasehold/internal/cli ./internal/failover ./server ./postgresdriver ./internal/redisroom . ./httpdriver ./filedriver ./cmd/leasehold/internal/proc

# Chaos takes all of the machine, in which others would miss their time limits.
BUT_CHAOS := $(GO) list $(FIRST) ./cmd/leasehold/... ./... | grep -v /internal/chaos

# What only counts and explores is played without the race detector in the short tests:
# it allocates as well, and is too slow to explore far. The eight kinds of tables of
# roomdriver are among them: the tests of the stores run that driver with the detector.
COUNTED := ./internal/costs ./internal/explore ./internal/mutate/source ./driver/roomdriver

# Most packages wait for servers and for the ends of leases most of the time, and so do
# their tests. Some packages set the second themselves.
PACKAGES ?= 4
TESTS    ?= 4

.PHONY: test
test: deps ## Run what finds bugs quickly, with the race detector: four to six minutes on two cores
	@$(MAKE) --no-print-directory -j 2 test-race test-counts
	@# Times are compared with nothing beside it.
	$(GO) test -vet=off -short -count=1 -run TestCost ./internal/redisroom

# What is played with the race detector, and beside it what is played without. Of that one
# package is played at a time, and with less precedence: the others keep times.
.PHONY: test-race test-counts
test-race:
	$(RACE) -short -p $(PACKAGES) -parallel $(TESTS) -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) $$($(BUT_CHAOS) | grep -v $(COUNTED:./%=-e /%$$))
test-counts:
	nice $(GO) test -vet=off -short -p 1 -count=1 $(COUNTED) ./internal/matrix
	nice $(GO) test -vet=off -short -count=1 -run Microscope ./internal/redisroom

.PHONY: test-all
test-all: test test-long nested cross floors test-32 ## Run everything that a change has to pass but lint

.PHONY: test-long
test-long: deps ## Run at full length what make test plays a part of, and let every store suffer for a while
	$(RACE) -p $(LONGPACKAGES) -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) $(LONG)
	@# The plays of many processes take all of the machine, too.
	$(RACE) -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) ./internal/locktest
	$(RACE) -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) ./cmd/leasehold/internal/chaos
	$(GO) test -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) ./internal/matrix ./internal/explore
	@# What the race detector has nothing to find in.
	$(GO) test -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) -run 'Microscope|TestCost|TestScripts' ./internal/redisroom

# The packages of which -short leaves something out, but for those that run alone, and the
# longest first.
LONG := ./cmd/leasehold/internal/cli ./internal/redisroom ./postgresdriver ./filedriver ./quorumdriver . ./server ./httpdriver $(COUNTED)
LONGPACKAGES ?= 3

.PHONY: nested
nested: deps ## Test the modules beside the library: the examples, the benchmark and the integrations
	@for dir in $(filter-out ./cmd/leasehold $(APART),$(NESTED)); do \
		echo "cd $$dir && go test ./..."; \
		(cd $$dir && $(RACE) -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) ./...); \
	done

# Inside the workspace the library is tested with the versions that the command
# requires, which are the newest. Its own go.mod states the oldest.
.PHONY: floors
floors: export GOWORK = off
floors: deps ## Test the library with the oldest versions that it requires
	$(GO) vet ./...
	$(GO) test -short -p $(PACKAGES) -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) $$($(GO) list ./... | grep -v -E '/internal/(chaos|costs)$$')

# Those that call the dependencies themselves.
CALLERS := ./redisdriver ./rueidisdriver ./postgresdriver ./filedriver ./leaseholdprom ./leaseholdotel ./fence

.PHONY: floors-short
floors-short: export GOWORK = off
floors-short: deps ## Vet all with the oldest versions, and test what calls the dependencies itself
	$(GO) vet ./...
	$(GO) test -short -p $(PACKAGES) -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) $(CALLERS)

# The race detector, which is C, does not exist there, and chaos and costs are
# about time, not about numbers.
.PHONY: test-32
test-32: export CGO_ENABLED = 0
test-32: export GOARCH = 386
test-32: deps ## Vet and test everything that needs no C on 32 bits
	$(GO) vet ./...
	$(GO) test -short -p $(PACKAGES) -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) $$($(BUT_CHAOS) | grep -v '/internal/costs$$')
	@for dir in $(filter-out $(APART),$(NESTED)); do (cd $$dir && $(GO) vet ./...); done

.PHONY: vet-others
vet-others: ## Compile and vet for 32 bits, tests included
	CGO_ENABLED=0 GOARCH=386 $(GO) vet ./... ./cmd/leasehold/...

.PHONY: race
race: deps ## Run all tests COUNT times, in changing order
	@for dir in . ./cmd/leasehold; do \
		(cd $$dir && $(RACE) -count=$(COUNT) -shuffle=on -timeout 60m $(TESTFLAGS) ./...); \
	done

.PHONY: soak
soak: deps ## Run the long tests, which look for rare failures
	$(GO) test -tags soak -run Soak -timeout 60m $(TESTFLAGS) ./...

.PHONY: explore
explore: deps ## Try everything that a few parties can do with a lock, two or three steps further
	$(GO) test -count=1 -v -timeout 0 -run TestExplore $(TESTFLAGS) ./internal/explore -explore.deep

.PHONY: chaos
chaos: deps ## Let every store suffer for CHAOS_FOR, and judge what its clients saw
	@# The package stands first, since TESTFLAGS may have flags of its own.
	$(GO) test ./cmd/leasehold/internal/chaos -count=1 -v -timeout 0 -run TestChaos -chaos.for=$(CHAOS_FOR) -chaos.pause=300ms $(TESTFLAGS)

# How many situations of each world the microscope goes on from, and in how many of
# them everything fails in turn.
STATES ?= 5000
FAULTS ?= 300

.PHONY: microscope
microscope: deps ## Run the Redis scripts in an interpreter, from STATES situations, with FAULTS
	$(GO) test -count=1 -v -timeout 0 -run Microscope $(TESTFLAGS) ./internal/redisroom -microscope.states=$(STATES) -microscope.faults=$(FAULTS)

# What make mutants changes, which part of all changes it tries, and after how long it
# begins no other, for the scripts and for Go; 0 for as long as it takes.
MUTATE      ?= room timing session scripts
PART        ?= 1
MUTANTS_FOR ?= 0

.PHONY: mutants
mutants: deps ## Change conditions and constants of MUTATE one at a time, and run the tests: a quarter of an hour for the Go, some minutes for the scripts
	$(if $(filter scripts,$(MUTATE)),$(GO) test -count=1 -v -timeout 0 -run Microscope_Mutants ./internal/redisroom -microscope.mutants=$(PART) -microscope.mutants.for=$(MUTANTS_FOR))
	$(if $(filter-out scripts,$(MUTATE)),$(GO) run ./internal/mutate -part $(PART) -for $(MUTANTS_FOR) $(filter-out scripts,$(MUTATE)))

.PHONY: test-redis
test-redis: deps ## Run the tests that need Redis against LEASEHOLD_REDIS_SERVER, the path of a redis-server or valkey-server
	@"$${LEASEHOLD_REDIS_SERVER:-redis-server}" --version
	$(RACE) -short -p $(PACKAGES) -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) $(REDIS)
	@"$${LEASEHOLD_REDIS_SERVER:-redis-server}" --version | sed 's/^/passed against: /'

# The packages whose tests start a Redis server.
REDIS = $$(grep -rl --include='*_test.go' internal/redistest . | grep -v -E '^./(bench|examples|integrations|cmd/leasehold/internal/chaos)/' | xargs -n1 dirname | sort -u)

.PHONY: test-postgres
test-postgres: deps ## Run the tests that need PostgreSQL against LEASEHOLD_POSTGRES_SERVER, the path of a postgres with its programs beside it
	@"$${LEASEHOLD_POSTGRES_SERVER:?is the path of a postgres}" --version
	$(RACE) -short -p $(PACKAGES) -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) $(POSTGRES)
	@"$$LEASEHOLD_POSTGRES_SERVER" --version | sed 's/^/passed against: /'

# The packages whose tests start a PostgreSQL server, the matrix apart, which plays on one in
# make test-long only.
POSTGRES = $$(grep -rl --include='*_test.go' internal/postgrestest . | grep -v -E '^./(bench|examples|integrations|internal/matrix|cmd/leasehold/internal/chaos)/' | xargs -n1 dirname | sort -u)

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME
	@.ci/fuzz $(FUZZTIME)

.PHONY: nightly
nightly: test-all explore microscope soak chaos ## Search for rare failures for a night, with everything that does so
	@.ci/fuzz 10m

.PHONY: screenshots
screenshots: deps ## Make the pictures of the page in docs/
	cd server/browsertest && $(GO) test -count=1 -run TestScreenshots . -screenshots=$(CURDIR)/docs

.PHONY: bench
bench: deps ## Compare with other libraries
	@if [ -d bench ]; then cd bench && $(GO) run .; else echo "There is no bench module."; fi

.PHONY: costs
costs: deps ## Print what each kind of lock costs the server, and what the scripts' second stages save
	$(GO) test -count=1 -v -run 'TestCost_(W9|Common)' ./internal/redisroom

.PHONY: cover
cover: deps ## Measure how much of the code the tests reach
	$(GO) test -coverpkg=./... -coverprofile=coverage.out -timeout $(TIMEOUT) ./...
	$(GO) tool cover -func=coverage.out | tail -1

.PHONY: cross
cross: ## Build for Linux, macOS and Windows, and for 32 bits
	@export CGO_ENABLED=0; \
	for target in linux/amd64 linux/arm64 linux/386 darwin/arm64 windows/amd64; do \
		echo "build for $$target"; \
		export GOOS=$${target%/*} GOARCH=$${target#*/}; \
		$(GO) build ./...; \
		if [ $$GOOS != windows ]; then $(GO) build -o /dev/null ./cmd/leasehold; fi; \
	done
	@for dir in . ./cmd/leasehold; do (cd $$dir && CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 $(GO) vet ./...); done

.PHONY: lint
lint: ## Check format, vet, linters and go.mod
	@# bench is not held to be tidy: tidy asks for what the tests of the peers need.
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "gofmt is needed for:"; echo "$$unformatted"; exit 1; fi
	@linter=$$($(LINTER)); \
	for dir in . $(filter-out $(APART),$(NESTED)); do \
		cd $(CURDIR)/$$dir; \
		echo "lint $$dir"; \
		$(GO) vet ./...; \
		"$$linter" run ./...; \
		case $$dir in ./bench) ;; *) $(CURDIR)/.ci/tidy -diff ;; esac; \
	done

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
packages: export WITH_PACKAGES = 1
packages: deps ## Build packages and the image, install and run them, and check manifests and workflows (root)
	shellcheck .ci/* packaging/build packaging/image/build packaging/scripts/*
	$$($(RELEASER) actionlint) -no-color
	cd packaging && $(GO) vet ./...
	cd packaging && $(GO) test -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) ./...

.PHONY: client-go
client-go: ## Compare the leader election with that of client-go, which takes minutes to compile
	cd integrations/leaderelection/clientgotest && $(GO) vet ./... && $(GO) test -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) ./...

# What a release needs is a module of its own beside the linter, whose versions it would change.
RELEASER := GOWORK=off $(GO) tool -n -modfile=$(CURDIR)/internal/tools/release/go.mod

.PHONY: install-tools
install-tools: ## Build the linter, which takes some minutes the first time
	$$($(LINTER)) version
