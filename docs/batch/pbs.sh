#!/bin/bash
# skt-hpl in a PBS job, with Open MPI: 8 nodes, 8 ranks of 8 threads on each. An
# interrupted run is started again, here or in the next job.
#
#   qsub pbs.sh
#
# Change here the nodes, the ranks and threads of a node (their product is its cores) and the time,
# and add your queue and account. Plan cluster.toml for the same numbers: job.sh has the command.
#
#PBS -N hpl
#PBS -l select=8:ncpus=64:mpiprocs=8:ompthreads=8
#PBS -l place=scatter:excl
#PBS -l walltime=12:00:00
#PBS -j oe

cd "$PBS_O_WORKDIR" || exit 2
# shellcheck source=docs/batch/job.sh
. "$PWD/job.sh" || exit 2
end_in "$(qstat -f "$PBS_JOBID" |
    awk -F '[ =:]+' '/Resource_List.walltime/ { print ($(NF - 2) * 60 + $(NF - 1)) * 60 + $NF }')"

# With keepalive mpirun notices a node that sends nothing any more; by itself it may wait for ever.
repeat mpirun --mca oob_tcp_keepalive_time 2 --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 3 \
    --hostfile "$PBS_NODEFILE" --map-by ppr:8:node --bind-to none -np "$(wc -l < "$PBS_NODEFILE")" \
    skt-hpl --config "$config" ${level:+--level "$level"} --time-limit "@$end" --json result.json
# qsub passes on none of the variables that this job was submitted with, unless they are named.
# A copy of this script under another name has to name itself here.
export IMAGES=$images LEVEL=$level
queue_again qsub -v IMAGES,LEVEL pbs.sh
