# Every target works on a fresh Debian machine with Go, git and make; `make help` lists them.
GO      ?= go
BIN     := bin
RANKS   ?= 4
FUZZTIME ?= 10s
STATIC  := CGO_ENABLED=0 $(GO) build -trimpath -ldflags='-s -w'
TOOL    := $(GO) tool -modfile=tools/go.mod
PKGS    := ./...

.DEFAULT_GOAL := build
.PHONY: build run test check fmt vet lint unit race s3 pbs live live-versions live-pbs fuzz bench bench-live soak package clean help

build: ## the three static programs, in bin/
	$(STATIC) -o $(BIN)/ ./cmd/openai4s ./cmd/openai4s-agent ./cmd/openai4s-gateway

run: build ## the main job end to end on this machine: 4 ranks count the words of Go's own source tree
	./$(BIN)/openai4s submit --nodes $(RANKS) --wait examples/wordcount/job.toml

test: ## everything: installs what the tests need (real Slurm included), checks, tests, real cluster
	tests/run.sh

check: fmt vet lint ## formatting, go vet and the linter

fmt:
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo 'gofmt would change:'; gofmt -l $$(git ls-files '*.go'); exit 1; }

vet:
	$(GO) vet $(PKGS)
	$(GO) vet -tags live $(PKGS)
	$(GO) vet -tags pbsfake ./tests/breakage

lint:
	$(TOOL) staticcheck $(PKGS)

unit: ## the tests that need no cluster
	$(GO) test $(PKGS)

race: ## the same under the race detector
	$(GO) test -race $(PKGS)

s3: ## the external step against a real S3 server, in a module of its own: its first build takes some two minutes
	cd tests/s3 && CGO_ENABLED=0 $(GO) test -vet=off -count=1 -timeout 10m ./... # vet would look at every dependency

pbs: ## breakage on a fake PBS; everything else about PBS is among the tests that need no cluster
	$(GO) test -count=1 -timeout 15m -tags pbsfake ./tests/breakage

live: ## the end-to-end tests on a real Slurm of this machine: brought up, used, taken down (root)
	tests/cluster/install.sh --accounting
	$(GO) test -count=1 -p 1 -timeout 20m -tags live ./tests/live/... ./tests/breakage ./scheduler/slurm/... ./sbatch/...
	$(GO) test -count=1 -tags live -run 'Munge|NoCredentialInArguments|NoAttestationInArguments|PayloadIsTheConnections' ./gateway

live-versions: ## the same on Slurm 24.11 and 26.05, each in a Debian of its own (root; minutes to make, 20 to run)
	tests/cluster/versions.sh

live-pbs: ## the end-to-end tests on the PBS whose commands are in PATH: docs/testing-on-pbs.md
	tests/pbs/check.sh
	$(GO) test -count=1 -timeout 60m -tags live ./tests/pbs

fuzz: ## every fuzz target for FUZZTIME each
	tests/fuzz.sh $(FUZZTIME)

soak: ## harm at every byte of a registration, 500 random rounds of breakage on this machine, 200 random submissions on a real Slurm and on a fake PBS (root); O4S_SEED repeats one
	O4S_EVERY_BYTE=1 $(GO) test -count=1 -timeout 1h -v -run TestHarmAtEveryByte ./gateway
	O4S_ROUNDS=500 $(GO) test -count=1 -timeout 3h -v -run TestRandomRounds ./tests/breakage
	tests/cluster/install.sh --accounting
	O4S_SCHEDULES=200 $(GO) test -count=1 -timeout 3h -v -tags live -run TestRandomSubmissions ./tests/breakage
	O4S_SCHEDULES=200 $(GO) test -count=1 -timeout 3h -v -tags pbsfake -run TestRandomSubmissions ./tests/breakage

bench: ## registration, memory, release, burns, submit to running, the agent: each beside a reference measured in the same run
	$(GO) test -run '^$$' -bench 'Registration|Release' -benchtime 8x -timeout 30m ./gateway
	$(GO) test -run '^$$' -bench 'Parked|Workloads|Idle|UnderAttack' -benchtime 5x -timeout 30m ./gateway
	$(GO) test -run '^$$' -bench . -benchtime 1x -timeout 30m ./credential
	$(GO) test -run '^$$' -bench . -benchtime 3x -timeout 30m ./tests/bench
	$(GO) test -run '^$$' -bench . -benchtime 20x ./internal/agent

bench-live: ## submit beside sbatch, and from sbatch to released on 64 nodes of a real Slurm, beside plain srun in the same run (root)
	tests/cluster/install.sh
	$(GO) test -run '^$$' -bench 'Release|Submit' -benchtime 5x -timeout 30m -tags live ./tests/live

clean: ## what the targets above made
	rm -rf $(BIN) dist

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
