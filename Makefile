# make run     install what is missing, build, and serve on 127.0.0.1:8080
# make install put the program `gleaner` on the PATH (in ~/.cargo/bin, or where CARGO_INSTALL_ROOT says)
# make test    install what is missing, and check everything that CI checks
# make lint    what the compiler, clippy, rustdoc, cargo-machete and typos have to say
# make fmt     format the code
# make bench   measure against pgbench, COPY and others: the table of benches/README.md (BENCH=start,ingest,depth,export,parquet,seeds,similar,memories,redaction,retention,fairness,gateway SCALE=100000)
# make fuzz    feed the readers of what strangers send with inputs made by chance (FUZZ_SECONDS=60 for each)
# make torture kill and restart the server and Postgres under load for minutes, fill the disk, move the clock (TORTURE_SECONDS=300)

# Where rustup puts cargo, should the shell not know of it.
OWN_PATH := $(PATH)
export PATH := $(PATH):$(HOME)/.cargo/bin
TARGET = $${CARGO_TARGET_DIR:-target}
# Most tests wait for Postgres and for clocks, so that a processor has time for two.
TEST_THREADS = $${RUST_TEST_THREADS:-$$((2 * $$(getconf _NPROCESSORS_ONLN)))}

.PHONY: run install test lint fmt bench fuzz torture deny unused spelling rust
.DEFAULT_GOAL := run

# The last command replaces its shell, so that signals reach the service.
run: rust
	@[ -n "$$DATABASE_URL" ] || scripts/install-postgres
	cargo build --release --locked
	@exec "$(TARGET)/release/gleaner" serve

# What rustup's shell setup puts on the PATH; said where it is not.
install: rust
	@[ -n "$$DATABASE_URL" ] || scripts/install-postgres
	cargo install --locked --path .
	@PATH="$(OWN_PATH)" command -v gleaner >/dev/null || echo "gleaner is in $${CARGO_INSTALL_ROOT:-$${CARGO_HOME:-$$HOME/.cargo}}/bin, which is not on your PATH."

test: rust
	@[ -n "$$TEST_DATABASE_URL" ] || scripts/install-postgres
	cargo fmt --check
	cargo clippy --all-targets --locked -- -D warnings
	RUST_TEST_THREADS=$(TEST_THREADS) cargo test --locked
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --document-private-items --locked
	@$(MAKE) --no-print-directory deny

lint: rust
	cargo fmt --check
	cargo clippy --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --document-private-items --locked
	@$(MAKE) --no-print-directory unused spelling

fmt: rust
	cargo fmt

bench: rust
	@scripts/install-postgres
	cargo bench --locked --bench goals

# With a nightly Rust and cargo-fuzz, inputs are guided by what they reach; without, they are changes of the corpus by chance.
fuzz: rust
	@if cargo +nightly fuzz --version >/dev/null 2>&1; then \
		for target in $$(ls tests/fuzz/corpus); do \
			mkdir -p fuzz/corpus/$$target; \
			(set -x; cargo +nightly fuzz run $$target fuzz/corpus/$$target tests/fuzz/corpus/$$target -- \
				-max_total_time=$${FUZZ_SECONDS:-60} -timeout=10 -rss_limit_mb=2048) || exit 1; \
		done; \
	else \
		echo "cargo +nightly fuzz is not there (cargo install cargo-fuzz): inputs are changes of the corpus by chance."; \
		FUZZ_SECONDS=$${FUZZ_SECONDS:-60} cargo test --release --locked --test fuzz -- --nocapture; \
	fi

torture: rust
	@scripts/install-postgres
	cargo test --release --locked --test api torture -- --ignored --nocapture

# Licences and sources of the dependencies, and known vulnerabilities when a copy of the list is here.
deny:
	@if ! cargo deny --version >/dev/null 2>&1; then \
		echo "cargo-deny is not installed: licenses and sources of the dependencies are not checked."; \
	else \
		advisories=; \
		[ -z "$$(ls -A "$${CARGO_HOME:-$$HOME/.cargo}/advisory-dbs" 2>/dev/null)" ] || advisories=advisories; \
		set -x; cargo deny --offline check licenses bans sources $$advisories; \
	fi

# Dependencies that nothing uses.
unused:
	@if ! cargo machete --version >/dev/null 2>&1; then \
		echo "cargo-machete is not installed: unused dependencies are not looked for."; \
	else \
		set -x; cargo machete; \
	fi

spelling:
	@if ! command -v typos >/dev/null; then \
		echo "typos is not installed: spelling is not checked."; \
	else \
		set -x; typos; \
	fi

rust:
	@command -v cargo >/dev/null || { echo "Rust is missing: install it as https://rustup.rs says, and run make again."; exit 1; }
