#!/bin/bash
# `skt-hpl launch` in a PBS job: 8 nodes and one spare, 8 ranks of 8 threads on each. It continues
# by itself after the loss of a node; its ssh reaches the nodes without a password.
#
#   qsub pbs-launch.sh
#
#PBS -N hpl
#PBS -l select=9:ncpus=64:mpiprocs=8:ompthreads=8
#PBS -l place=scatter:excl
#PBS -l walltime=12:00:00
#PBS -j oe

cd "$PBS_O_WORKDIR" || exit 2
# Two such jobs at a time need a folder each, else one continues the other: set IMAGES.
# `skt-hpl status --state images/launch` shows how far the job is.
images=${IMAGES:-$PBS_O_WORKDIR/images}
mkdir -p "$images"
touch "$images/begun"
# A configuration without checkpoints, which `plan` may choose, has no images: set LEVEL to nothing.
# The end of this script looks for images in IMAGES, so another level's folder belongs there.
level=${LEVEL-global:$images}
# The run saves its state before this time, a minute before the job ends.
job=$(qstat -f "$PBS_JOBID")
left=$(echo "$job" |
    awk -F '[ =:]+' '/Resource_List.walltime/ { print ($(NF - 2) * 60 + $(NF - 1)) * 60 + $NF }')
[ -n "$left" ] || { echo "qstat does not tell the walltime" >&2; exit 2; }
end=$(($(date +%s) + left - 60))
# The first host of a job that PBS has started again may be another one: the launcher there is gone.
runs=$(echo "$job" | awk '$1 == "run_count" { print $3 }')
head_lost=''
if [ "${runs:-1}" -gt 1 ]; then head_lost=--head-lost; fi

skt-hpl launch ${head_lost:+"$head_lost"} --state "$images/launch" --json launch.json -- \
    --config cluster.toml ${level:+--level "$level"} --time-limit "@$end" --json result.json
code=$?
# 75: the time is over, or no spare is left.
if [ "$code" != 75 ]; then
    rm -f "$images/failed"
    exit "$code"
fi
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
IMAGES=$images LEVEL=$level qsub -v IMAGES,LEVEL pbs-launch.sh ||
    { echo "no further job: qsub failed" >&2; exit 2; }
exit 75
