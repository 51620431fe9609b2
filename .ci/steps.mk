# The steps of CI, which .ci/run runs two at a time. A recipe is run by .ci/step.

# What Go compiles has no paths of folders in it, and so is of use to every clone.
export GOFLAGS := $(strip $(shell go env GOFLAGS) -trimpath)
# With -race every process waits a second before it exits, for races that happen then. A twentieth serves.
export GORACE := atexit_sleep_ms=50

MODULES := $(shell git ls-files go.mod '*/go.mod' | xargs dirname)
# Those with tests.
TESTS := $(addprefix test/,$(foreach m,$(MODULES),$(if $(shell git ls-files '$m/*_test.go'),$m)))

# The modules whose tests depend on time or chance, or on programs that they build: no result of theirs is from Go's cache.
UNCACHED := e2e interop tools %etcdtest %kubernetes

# Tests that compute in one goroutine, for long, and tests of allocations. The race detector would find nothing in them, and make
# them take ten times as long, or allocate.
PLAIN := Test(Check|CheckAtRandom|Places_OfTheRulesThatDecide|Constraints_BetweenTwoMeshes|BuildAgain|Build_Properties|Variants_Bounds|Routes_AnRPCMeetsItsRule|ExplanationsAreBounded|DamagedResources|AllocationsPerUnaryRPC|AllocationsOfARetryPolicy|PassingThroughAllocatesNothing|RouteDoesNotAllocate)
# Tests that need programs which the step "packages" installs.
PACKAGED := Test(Browser.*|AlertsByPromtool|AlertsOnRunningExamples|OtherLanguages.*)

SHELL := .ci/step
.SHELLFLAGS = $@

.PHONY: all static plugin whole serving nightly
all: packages static plugin serving whole

# The jobs of .github/workflows/ci.yml.
static: gofmt tidy generated size lint windows docs test/tools
plugin: test/. plain
whole: test/e2e test/interop packaged
serving: $(filter-out test/. test/e2e test/interop test/tools,$(TESTS))

# Longer scopes, larger numbers of seeds, and nothing from Go's cache.
nightly: UNCACHED := %
nightly: all ways newest-grpc dockerfile check sim fuzz

.PHONY: gofmt tidy generated size lint windows docs plain packages packaged ways newest-grpc dockerfile check sim fuzz $(TESTS)

gofmt:
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); echo "$$unformatted"; test -z "$$unformatted"

tidy:
	@.ci/tidy -diff

generated: # the Go code in proto/ is what its .proto files give
	@cp -r proto "$$CI_SCRATCH/generated"; find "$$CI_SCRATCH/generated" -name '*.pb.go' -delete; \
	go -C tools run ./protogen "$$CI_SCRATCH/generated"; diff -r "$$CI_SCRATCH/generated" proto

size docs check:
	@$(MAKE) --no-print-directory -k $@ RULES=1

lint: # go vet and staticcheck, all modules that tools/go.work has at once
	@go -C tools build -o "$$CI_SCRATCH/lint" ./lint; cd tools; "$$CI_SCRATCH/lint" work

windows: # the plugin and its tests compile there
	@GOOS=windows go vet ./...

# The README's test command, "go test ./...", in each module. The step "lint" has the analyzers of "go vet".
$(TESTS): test/%:
	@go -C $* test -race -vet=off -timeout 40m $(if $(filter $(UNCACHED),$*),-count=1) -skip '^($(PLAIN)|$(PACKAGED))$$' ./...

# $(call named,PATTERN,FLAGS) runs the tests of these names in each folder that has one.
named = failed=; for dir in $$(git grep -lE '^func $1\(' -- '*_test.go' | xargs -n1 dirname | sort -u); do \
  go -C "$$dir" test -vet=off -timeout 40m $2 -run '^$1$$' . || failed=1; done; test -z "$$failed"

plain:
	@$(call named,$(PLAIN))

packaged: packages
	@$(call named,$(PACKAGED),-race -count=1 -v)

packages: # only root of Debian can install them
	@missing=(); \
	command -v promtool prometheus > /dev/null || missing+=(prometheus); \
	/usr/bin/python3 -c 'import grpc' 2> /dev/null || missing+=(python3-grpcio); \
	command -v chromium chromium-browser google-chrome > /dev/null || missing+=(chromium); \
	[ $${#missing[@]} = 0 ] || apt-get update -qq || true; \
	for package in "$${missing[@]}"; do \
	  apt-get install -qq --no-install-recommends "$$package" > /dev/null || echo "$$package cannot be installed: the tests that need it are skipped"; \
	done

ways: # all tests of e2e, and not only those that everyWay marks
	@E2E_WAY=SotW,relay-sotw-delta,relay-delta-sotw go -C e2e test -vet=off -count=1 -timeout 60m .

newest-grpc:
	@.ci/grpc-version

dockerfile:
	@export DYNXDS_IMAGE=1; $(call named,TestDockerfile,-count=1)

sim: # from a new seed each day on
	@$(MAKE) --no-print-directory sim SEEDS=1000 FIRST="$$(($$(date +%s) / 86400 * 10000))"

fuzz:
	@.ci/fuzz 2m
