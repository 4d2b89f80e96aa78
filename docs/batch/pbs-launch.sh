#!/bin/bash
# `skt-hpl launch` in a PBS job: 8 nodes and one spare, 8 ranks of 8 threads on each. It continues
# by itself after the loss of a node; its ssh reaches the nodes without a password.
# `skt-hpl status --state images/launch` shows how far the job is.
#
#   qsub pbs-launch.sh
#
# Change here the nodes, the ranks and threads of a node (their product is its cores) and the time,
# and add your queue and account. Plan cluster.toml for the same numbers: job.sh has the command.
#
#PBS -N hpl
#PBS -l select=9:ncpus=64:mpiprocs=8:ompthreads=8
#PBS -l place=scatter:excl
#PBS -l walltime=12:00:00
#PBS -j oe

cd "$PBS_O_WORKDIR" || exit 2
# shellcheck source=docs/batch/job.sh
. "$PWD/job.sh" || exit 2
job=$(qstat -f "$PBS_JOBID")
end_in "$(echo "$job" |
    awk -F '[ =:]+' '/Resource_List.walltime/ { print ($(NF - 2) * 60 + $(NF - 1)) * 60 + $NF }')"
# The first host of a job that PBS has started again may be another one: the launcher there is gone.
runs=$(echo "$job" | awk '$1 == "run_count" { print $3 }')
head_lost=''
if [ "${runs:-1}" -gt 1 ]; then head_lost=--head-lost; fi

once skt-hpl launch ${head_lost:+"$head_lost"} --state "$images/launch" \
    --no-spare "$no_spare" --json launch.json -- \
    --config "$config" ${level:+--level "$level"} --time-limit "@$end" --json result.json
# qsub passes on none of the variables that this job was submitted with, unless they are named.
# A copy of this script under another name has to name itself here.
export IMAGES=$images LEVEL=$level NO_SPARE=$no_spare
queue_again qsub -v IMAGES,LEVEL,NO_SPARE pbs-launch.sh
