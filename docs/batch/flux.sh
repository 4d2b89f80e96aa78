#!/bin/bash
# skt-hpl in a Flux job: 8 nodes, 8 ranks of 8 threads on each. An interrupted run
# is started again; submit the job again after exit code 75.
#
#   flux batch flux.sh
#
#flux: --job-name=hpl
#flux: --nodes=8
#flux: --exclusive
#flux: --time-limit=12h

# shellcheck source=docs/batch/job.sh
. "$PWD/job.sh" || exit 2
end_in "$(flux job timeleft)"

repeat flux run --nodes=8 --ntasks=64 --cores-per-task=8 \
    skt-hpl --config cluster.toml ${level:+--level "$level"} --time-limit "@$end" --json result.json
queue_again
