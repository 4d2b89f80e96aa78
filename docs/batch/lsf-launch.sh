#!/bin/bash
# `skt-hpl launch` in an LSF job: 8 nodes and one spare, 8 ranks of 8 threads on each. It continues
# by itself after the loss of a node.
#
#   bsub < lsf-launch.sh
#
#BSUB -J hpl
#BSUB -n 72
#BSUB -R "span[ptile=8] affinity[core(8)]"
#BSUB -x
#BSUB -W 12:00
#BSUB -Q "75"
#BSUB -o hpl.%J.out

# Two such jobs at a time need a folder each, else one continues the other: set IMAGES.
# `skt-hpl status --state images/launch` shows how far the job is.
images=${IMAGES:-$LS_SUBCWD/images}
mkdir -p "$images"
touch "$images/begun"
# A configuration without checkpoints, which `plan` may choose, has no images: set LEVEL to nothing.
# The end of this script looks for images in IMAGES, so another level's folder belongs there.
level=${LEVEL-global:$images}
# The run saves its state before this time, a minute before the job ends.
left=$(bjobs -noheader -o time_left "$LSB_JOBID" |
    awk '/:/ { split($1, part, ":"); print (part[1] * 60 + part[2]) * 60 }')
[ -n "$left" ] || { echo "bjobs does not tell the time left" >&2; exit 2; }
end=$(($(date +%s) + left - 60))

# blaunch reaches a node of the job: AGENT HOST COMMAND.
skt-hpl launch --state "$images/launch" --hosts "$LSB_DJOB_HOSTFILE" --agent blaunch \
    --json launch.json -- --config cluster.toml ${level:+--level "$level"} \
        --time-limit "@$end" --json result.json
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
exit 75
