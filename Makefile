GO     ?= go
BIN    := bin
FLAGS  := -trimpath -ldflags=-s\ -w
export CGO_ENABLED = 0

.PHONY: build
build: ## the three programs, static, in bin/
	$(GO) build $(FLAGS) -o $(BIN)/ ./cmd/openai4s ./cmd/openai4s-agent ./cmd/openai4s-gateway
