.DEFAULT_GOAL := help
GO ?= go
FUZZTIME ?= 30s

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Run the demonstration: a control plane, backends and a client in one process
	$(GO) run ./cmd/dynxds demo

.PHONY: test
test: ## Run the tests under the race detector
	$(GO) test -race ./...

.PHONY: interop
interop: ## Run the tests against peers (go-control-plane's server, gRPC-Go's xds)
	cd interop && $(GO) test -race ./...

.PHONY: bench
bench: ## Run the benchmarks beside the peers
	cd interop && $(GO) test -run '^$$' -bench . -benchmem ./...

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (30s)
	@for p in $$($(GO) list ./...); do \
	  for t in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz'); do \
	    $(GO) test -run '^$$' -fuzz "^$$t$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x $$p || exit 1; \
	  done; \
	done

.PHONY: generate
generate: ## Generate the Go code of the .proto files in proto/
	rm -f $$(find proto -name '*.pb.go')
	cd tools && $(GO) run ./protogen -proto ../proto -out ../proto

.PHONY: lint
lint: ## gofmt, go vet, staticcheck and the direction of imports
	@test -z "$$(gofmt -l .)" || { gofmt -l .; exit 1; }
	$(GO) vet ./...
	$(GO) tool -modfile=tools/go.mod staticcheck ./...
	.ci/imports

.PHONY: ci
ci: ## Everything that has to pass before a change lands
	.ci/run
