#!/bin/bash
# `skt-hpl launch` in an LSF job: 8 nodes and one spare, 8 ranks of 8 threads on each. It continues
# by itself after the loss of a node.
# `skt-hpl status --state images/launch` shows how far the job is.
#
#   bsub < lsf-launch.sh
#
# Change here the nodes, the ranks and threads of a node (their product is its cores) and the time,
# and add your queue and account. Plan cluster.toml for the same numbers: job.sh has the command.
#
#BSUB -J hpl
#BSUB -n 72
#BSUB -R "span[ptile=8] affinity[core(8)]"
#BSUB -x
#BSUB -W 12:00
#BSUB -Q "75"
#BSUB -o hpl.%J.out

# shellcheck source=docs/batch/job.sh
. "$LS_SUBCWD/job.sh" || exit 2
end_in "$(bjobs -noheader -o time_left "$LSB_JOBID" |
    awk '/:/ { split($1, part, ":"); print (part[1] * 60 + part[2]) * 60 }')"

# blaunch reaches a node of the job: AGENT HOST COMMAND.
once skt-hpl launch --state "$images/launch" --agent blaunch --no-spare "$no_spare" \
    --json launch.json -- \
    --config "$config" ${level:+--level "$level"} --time-limit "@$end" --json result.json
queue_again
