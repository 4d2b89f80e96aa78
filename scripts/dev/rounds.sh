# Runs tests of the clusters made of namespaces many times over, for scripts that source this file.
# shellcheck shell=bash

# rounds ROUNDS ARGUMENT...: continues after a failure, and reports at the end what failed. Fails,
# too, if a test was skipped or none has run. Each round has a seed of its own.
rounds() {
    local log round bad=0 passed failed skipped seed=${SKT_HPL_SEED:-$(date +%s)}
    cargo test --locked --no-run --test launch
    log=$(mktemp)
    # shellcheck disable=SC2064 # this value
    trap "rm -f '$log'" EXIT
    for round in $(seq "$1"); do
        echo "round $round of $1"
        SKT_HPL_SEED=$((seed + round - 1)) cargo test --locked --no-fail-fast --test launch -- "${@:2}" \
            --include-ignored --test-threads 1 --show-output 2>&1 | tee -a "$log" || bad=$((bad + 1))
    done
    failed=$(grep -c '^test .* FAILED$' "$log" || true)
    passed=$(grep -c '^test .* ok$' "$log" || true)
    skipped=$(grep -c 'skipped: ' "$log" || true)
    echo "$1 round(s), $bad of them failed: $passed tests passed, $failed failed, $skipped skipped"
    grep '^test .* FAILED$' "$log" | sort | uniq -c || true
    [ "$bad" = 0 ] && [ "$skipped" = 0 ] && [ "$passed" != 0 ]
}
