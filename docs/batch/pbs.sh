#!/bin/bash
# skt-hpl in a PBS job, with Open MPI: 8 nodes, 8 ranks of 8 threads on each. An
# interrupted run is started again, here or in the next job.
#
#   qsub pbs.sh
#
#PBS -N hpl
#PBS -l select=8:ncpus=64:mpiprocs=8:ompthreads=8
#PBS -l place=scatter:excl
#PBS -l walltime=12:00:00
#PBS -j oe

cd "$PBS_O_WORKDIR" || exit 2
# Two such jobs at a time need a folder each, else one continues the other: set IMAGES.
images=${IMAGES:-$PBS_O_WORKDIR/images}
mkdir -p "$images"
touch "$images/begun"
# A configuration without checkpoints, which `plan` may choose, has no images: set LEVEL to nothing.
# The end of this script looks for images in IMAGES, so another level's folder belongs there.
level=${LEVEL-global:$images}
# The run saves its state before this time, a minute before the job ends.
left=$(qstat -f "$PBS_JOBID" |
    awk -F '[ =:]+' '/Resource_List.walltime/ { print ($(NF - 2) * 60 + $(NF - 1)) * 60 + $NF }')
[ -n "$left" ] || { echo "qstat does not tell the walltime" >&2; exit 2; }
end=$(($(date +%s) + left - 60))
ranks=$(wc -l < "$PBS_NODEFILE")

# With keepalive mpirun notices a node that sends nothing any more; by itself it may wait for ever.
for _ in 1 2 3; do
    mpirun --mca oob_tcp_keepalive_time 2 --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 3 \
        --hostfile "$PBS_NODEFILE" --map-by ppr:8:node --bind-to none -np "$ranks" \
        skt-hpl --config cluster.toml ${level:+--level "$level"} \
            --time-limit "@$end" --json result.json
    code=$?
    # 0: passed; 1: a residual failed; 2: bad input; 75: the time is over or a rank failed, another job continues.
    # All others: a rank or a node was lost, and the same command continues here.
    # 126 and 127: the program does not start.
    case $code in 0 | 1 | 2 | 126 | 127) rm -f "$images/failed"; exit "$code" ;; 75) break ;; esac
done
# The next job continues from the images. Those of a second epoch show that the first are whole:
# images that fail leave files, too. After three jobs in a row without them no other is queued.
epochs=$(find "$images" -name 't*.e*' -newer "$images/begun" | sed 's/.*\.//' | sort -u | wc -l)
if [ "$epochs" -gt 1 ]; then
    rm -f "$images/failed"
else
    echo "$code" >> "$images/failed" || { echo "no further job: jobs cannot be counted in $images" >&2; exit 2; }
    if [ "$(wc -l < "$images/failed")" -ge 3 ]; then
        rm -f "$images/failed"
        echo "no further job: no images of two epochs in $images; this one ended with $code" >&2
        exit 2
    fi
fi
# qsub passes on none of the variables that this job was submitted with, unless they are named.
# A copy of this script under another name has to name itself here.
IMAGES=$images LEVEL=$level qsub -v IMAGES,LEVEL pbs.sh ||
    { echo "no further job: qsub failed" >&2; exit 2; }
exit 75
