#!/bin/bash
# skt-hpl in an LSF job, with Open MPI: 8 nodes, 8 ranks of 8 threads on each. LSF puts the job
# into its queue again when it ends with one of the codes of -Q.
#
#   bsub < lsf.sh
#
# Change here the nodes, the ranks and threads of a node (their product is its cores) and the time,
# and add your queue and account. Plan cluster.toml for the same numbers: job.sh has the command.
#
#BSUB -J hpl
#BSUB -n 64
#BSUB -R "span[ptile=8] affinity[core(8)]"
#BSUB -x
#BSUB -W 12:00
#BSUB -Q "75"
#BSUB -o hpl.%J.out

# shellcheck source=docs/batch/job.sh
. "$LS_SUBCWD/job.sh" || exit 2
end_in "$(bjobs -noheader -o time_left "$LSB_JOBID" |
    awk '/:/ { split($1, part, ":"); print (part[1] * 60 + part[2]) * 60 }')"

# With keepalive mpirun notices a node that sends nothing any more; by itself it may wait for ever.
repeat mpirun --mca oob_tcp_keepalive_time 2 --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 3 \
    --hostfile "$LSB_DJOB_HOSTFILE" --map-by ppr:8:node --bind-to none -np "$(wc -l < "$LSB_DJOB_HOSTFILE")" \
    skt-hpl --config "$config" ${level:+--level "$level"} --time-limit "@$end" --json result.json
queue_again
