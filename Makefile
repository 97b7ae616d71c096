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
# users. The tools are not tested and not linted.
NESTED := $(shell find . -mindepth 2 -name go.mod -not -path './internal/tools/*' -exec dirname {} \; | sort)

# The linter is built from source at the version in internal/tools/go.mod.
TOOL := $(GO) tool -modfile=$(CURDIR)/internal/tools/go.mod

# What is built for every system: all but the command and what only it needs,
# which wants process groups.
PORTABLE := $(GO) list -f '{{if .GoFiles}}{{.ImportPath}}{{end}}' ./... \
	| grep -v -E '/(cmd|internal/cli|internal/proc|examples)(/|$$)'

# The race detector is linked with cgo, whatever the environment says.
RACE := CGO_ENABLED=1 $(GO) test -race

.PHONY: help
help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build everything, the command into bin/
	$(GO) build ./...
	@if [ -d cmd ]; then mkdir -p bin && $(GO) build -o bin/ ./cmd/...; fi

.PHONY: deps
deps: ## Install what the tests need besides Go, if it is missing (Debian)
	@.ci/deps

.PHONY: test
test: deps ## Run all tests with the race detector, then build for other systems
	$(RACE) -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) $$($(GO) list ./... | grep -v /internal/chaos)
	@# Chaos takes all of the machine for two minutes, in which others would miss their time limits.
	$(RACE) -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) ./internal/chaos
	@# The race detector allocates as well, so what is allocated is counted without.
	$(GO) test -count=1 -run 'Allocat' ./internal/costs ./internal/redisroom
	@for dir in $(NESTED); do \
		echo "cd $$dir && go test ./..."; \
		(cd $$dir && $(RACE) -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) ./...); \
	done
	@$(MAKE) --no-print-directory cross

.PHONY: race
race: deps ## Run all tests COUNT times, in changing order
	$(RACE) -count=$(COUNT) -shuffle=on -timeout 60m $(TESTFLAGS) ./...

.PHONY: soak
soak: deps ## Run the long tests, which look for rare failures
	$(GO) test -tags soak -run Soak -timeout 60m $(TESTFLAGS) ./...

.PHONY: chaos
chaos: deps ## Let every store suffer for CHAOS_FOR, and judge what its clients saw
	$(GO) test -count=1 -v -timeout 0 -run TestChaos $(TESTFLAGS) ./internal/chaos -chaos.for=$(CHAOS_FOR) -chaos.pause=300ms

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME
	@.ci/fuzz $(FUZZTIME)

.PHONY: bench
bench: deps ## Compare with other libraries
	@if [ -d bench ]; then cd bench && $(GO) run .; else echo "There is no bench module."; fi

.PHONY: costs
costs: deps ## Print what each kind of lock costs the server
	$(GO) test -count=1 -v -run TestCost_W9 ./internal/redisroom

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
		$(GO) build -o /dev/null $$($(PORTABLE)); \
		if [ -d cmd ] && [ $$GOOS != windows ]; then $(GO) build -o /dev/null ./cmd/...; fi; \
	done
	CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 $(GO) vet ./...

.PHONY: lint
lint: ## Check format, vet, linters and go.mod
	@# bench is not held to be tidy: tidy asks for what the tests of the peers need.
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "gofmt is needed for:"; echo "$$unformatted"; exit 1; fi
	@for dir in . $(NESTED); do \
		cd $(CURDIR)/$$dir; \
		echo "lint $$dir"; \
		$(GO) vet ./...; \
		$(TOOL) golangci-lint run ./...; \
		case $$dir in ./bench) ;; *) $(GO) mod tidy -diff ;; esac; \
	done

.PHONY: install-tools
install-tools: ## Build the linter, which takes some minutes the first time
	$(TOOL) golangci-lint version
