#!/bin/bash
# skt-hpl in a Flux job: 8 nodes, 8 ranks of 8 threads on each. An interrupted run
# is started again; submit the job again after exit code 75.
#
#   flux batch flux.sh
#
# Change here the nodes, the ranks and threads of a node (their product is its cores) and the time,
# and add your queue and account. Plan cluster.toml for the same numbers: job.sh has the command.
#
#flux: --job-name=hpl
#flux: --nodes=8
#flux: --exclusive
#flux: --time-limit=12h

# shellcheck source=docs/batch/job.sh
. "$PWD/job.sh" || exit 2
end_in "$(flux job timeleft)"

repeat flux run --nodes=8 --ntasks=64 --cores-per-task=8 \
    skt-hpl --config "$config" ${level:+--level "$level"} --time-limit "@$end" --json result.json
queue_again
