.DEFAULT_GOAL := help
.PHONY: help run test check acceptance bench

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## start the relay: on a development chain of its own, or with UPSTREAM=https://… in front of that node; ARGS="--listen …" for flags
	@scripts/run $(ARGS)

test: ## run the tests
	@scripts/test

check: ## formatting, lint, types, direction of imports
	@scripts/check

acceptance: ## run the long black-box suite
	@scripts/acceptance

bench: ## measure, and write docs/benchmarks.md: all groups, or GROUP=pass, heads, https, large, idle, submit, batch, senders, redis, order, journal, workers, soak, profile
	@scripts/bench $(GROUP)
