.DEFAULT_GOAL := help
GO ?= go
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
FUZZTIME ?= 30s
DOCS := README.md CONTRIBUTING.md SECURITY.md $(wildcard docs/*.md docs/*/*.md) examples/mesh/README.md examples/otel/README.md interop/README.md

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Run the demonstration: a control plane, backends and a client in one process
	$(GO) run ./cmd/dynxds demo

.PHONY: test
test: ## Run the tests of the plugin and of the command under the race detector
	$(GO) test -race work

# How often and how long each benchmark runs. Those with a process of their own
# (FLEET) take seconds for each operation of a peer.
BENCHCOUNT ?= 5
FLEET := Fleet|Channels|Members
# How many clients of a relay there are.
RELAYCLIENTS ?= 10000
# Benchmarks of single packages, which have no peer.
PARTS := ^Benchmark(Select|Filters|DecodeRoutes|UpdateRoutes|Match)$$
PARTSOF := ./configselector ./internal/xdsresource ./xdsclient/dynparam
BENCHOUT := bin/bench

.PHONY: bench
bench: ## Run the benchmarks beside the peers, about half an hour, and print what benchstat makes of them
	@mkdir -p $(BENCHOUT)
	cd interop && $(GO) test -run '^$$' -bench . -skip '$(FLEET)|Relay|Hostile' -benchmem -benchtime 200ms -count $(BENCHCOUNT) -timeout 30m . | tee ../$(BENCHOUT)/rpcs.txt
	cd interop && $(GO) test -run '^$$' -bench '$(FLEET)' -benchtime 3x -count $(BENCHCOUNT) -timeout 30m . | tee ../$(BENCHOUT)/fleet.txt
	cd interop && $(GO) test -run '^$$' -bench Relay -benchtime 10x -relay.clients $(RELAYCLIENTS) -timeout 30m . | tee ../$(BENCHOUT)/relay.txt
	cd interop && $(GO) test -run '^$$' -bench Hostile -benchtime 1x -timeout 30m . | tee ../$(BENCHOUT)/hostile.txt
	$(GO) test -run '^$$' -bench '$(PARTS)' -benchmem -benchtime 200ms -count $(BENCHCOUNT) $(PARTSOF) | tee $(BENCHOUT)/parts.txt
	cat $(BENCHOUT)/*.txt > $(BENCHOUT)/all
	cd tools && $(GO) tool benchstat -ignore pkg -col /peer ../$(BENCHOUT)/all

SEEDS ?= 1000
FIRST ?= 1

.PHONY: sim
sim: ## Simulate the mesh on virtual time by SEEDS (1000) from FIRST (1) on, half of them on each of two cores, and a Kubernetes API server's events by as many; shrinks what fails
	@mkdir -p bin
	cd mesh/kubernetes && $(GO) test ./internal/cluster -run '^TestEventStream$$' -timeout 0 -first $(FIRST) -seeds $(SEEDS)
	cd interop && $(GO) test -c -o ../bin/sim.test ./soak
	@half=$$(( ($(SEEDS) + 1) / 2 )); \
	run() { GOGC=400 GOMAXPROCS=1 bin/sim.test -test.run '^TestSimulations$$' -test.v -test.timeout 0 -first "$$1" -seeds "$$2"; }; \
	run $(FIRST) $$half & first=$$!; \
	run $$(( $(FIRST) + half )) $$(( $(SEEDS) - half )); second=$$?; \
	wait $$first && exit $$second

# The scopes of "make check", of the client, of the server and of the relay; RULES=1 checks the rules too.
CHECK ?= user=3 world=1 breaks=1 extra=1 start=01
CHECKSERVER ?= user=1 world=2 breaks=1 nacks=1 start=01
CHECKRELAY ?= all=3 answered=1
CHECKMOVES ?= moves=3 world=1 breaks=1 start=0
CHECKTIME ?= 10m
RULES ?=

CHECKS := check-client check-moves check-random check-server check-relay $(if $(RULES),check-rules)

.PHONY: check $(CHECKS)
check: $(CHECKS) ## Follow the protocol of client, server and relay through larger scopes than CI (CHECK, CHECKSERVER, CHECKRELAY, CHECKTIME for each way); RULES=1 switches off the client's rules

check-client:
	$(GO) test ./xdsclient -run '^TestCheck$$' -v -timeout 0 -check.scope '$(CHECK)' -check.time $(CHECKTIME)

check-moves:
	$(GO) test ./xdsclient -run '^TestCheck$$' -v -timeout 0 -check.way moves -check.scope '$(CHECKMOVES)' -check.time $(CHECKTIME)

check-random:
	$(GO) test ./xdsclient -run '^TestCheckAtRandom$$' -v -timeout 0 -check.time $(CHECKTIME)

check-server:
	$(GO) test ./mesh/controlplane -run '^TestCheck$$' -v -timeout 0 -check.scope '$(CHECKSERVER)' -check.time $(CHECKTIME)

check-relay:
	$(GO) test ./mesh/relay -run '^TestCheck$$' -v -timeout 0 -check.scope '$(CHECKRELAY)' -check.time $(CHECKTIME)

check-rules:
	cd tools && $(GO) run ./checkrules -C ..

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (30s)
	.ci/fuzz $(FUZZTIME)

.PHONY: grpc-version
grpc-version: ## Run the tests with another gRPC, GRPC=v1.90.0; the newest tested one by default
	.ci/grpc-version $(GRPC)

.PHONY: docs
docs: ## Run the commands in README.md, docs/ and the READMEs of examples and interop, and follow their links
	cd tools && $(GO) build -o ../bin/doccheck ./doccheck
	bin/doccheck $(DOCS)

.PHONY: generate
generate: ## Generate the Go code of the .proto files in proto/
	rm -f $$(find proto -name '*.pb.go')
	cd tools && $(GO) run ./protogen ../proto

# The ceilings of "make size". Who deletes lowers them; one rises only for a feature that was asked for: dynxds doctor (1,040 lines), its form for
# Kubernetes (580), top (750), codes of errors and schemas (550), ext_authz (780), gcp_authn and DNS clusters (450),
# RLS (480), ext_proc (1,300), composite (775, and 125 for CEL), ignored fields and decisions of filters (110).
SIZE_PLUGIN := 32815
SIZE_OTHER := 39343
SIZE_TESTS := 70729
SIZE_WORDS := 45000

.PHONY: size
size: ## Print the lines of Go by module and room, without comments and generated code, and the sums; fails above their ceilings
	@cd tools && $(GO) run ./size -C .. -plugin $(SIZE_PLUGIN) -other $(SIZE_OTHER) -tests $(SIZE_TESTS) -words $(SIZE_WORDS)

.PHONY: tidy
tidy: ## go mod tidy, in every module
	.ci/tidy

.PHONY: lint
lint: ## gofmt, go vet and staticcheck on all modules, and the direction of imports
	.ci/run gofmt lint test/tools

.PHONY: ci
ci: ## Everything that has to pass before a change lands
	.ci/run

.PHONY: nightly
nightly: ## That, and what takes hours: e2e over all ways, larger scopes, 1,000 seeds, the newest gRPC, fuzzing for minutes
	.ci/run nightly
