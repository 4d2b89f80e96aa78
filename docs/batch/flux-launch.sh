#!/bin/bash
# `skt-hpl launch` in a Flux job: 8 nodes and one spare, 8 ranks of 8 threads on each. It continues
# by itself after the loss of a node; its ssh reaches the nodes without a password.
# `skt-hpl status --state images/launch` shows how far the job is.
#
#   flux batch flux-launch.sh
#
# Change here the nodes, the ranks and threads of a node (their product is its cores) and the time,
# and add your queue and account. Plan cluster.toml for the same numbers: job.sh has the command.
#
#flux: --job-name=hpl
#flux: --nodes=9
#flux: --exclusive
#flux: --time-limit=12h

# shellcheck source=docs/batch/job.sh
. "$PWD/job.sh" || exit 2
end_in "$(flux job timeleft)"
flux hostlist --expand --delimiter='\n' local | sed 's/$/ slots=8/' > "$images/hosts"

once skt-hpl launch --state "$images/launch" --hosts "$images/hosts" --json launch.json \
    --launcher-template 'flux run --nodes={nodes} --ntasks={ranks} --cores-per-task=8 --requires=hosts:{hosts} {command}' -- \
    --config "$config" ${level:+--level "$level"} --time-limit "@$end" --json result.json
queue_again
