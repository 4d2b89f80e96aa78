#!/bin/bash
# `skt-hpl launch` in a Flux job: 8 nodes and one spare, 8 ranks of 8 threads on each. It continues
# by itself after the loss of a node; its ssh reaches the nodes without a password.
#
#   flux batch flux-launch.sh
#
#flux: --job-name=hpl
#flux: --nodes=9
#flux: --exclusive
#flux: --time-limit=12h

# Two such jobs at a time need a folder each, else one continues the other: set IMAGES.
# `skt-hpl status --state images/launch` shows how far the job is.
images=${IMAGES:-$PWD/images}
mkdir -p "$images"
touch "$images/begun"
# A configuration without checkpoints, which `plan` may choose, has no images: set LEVEL to nothing.
# The end of this script looks for images in IMAGES, so another level's folder belongs there.
level=${LEVEL-global:$images}
# The run saves its state before this time, a minute before the job ends.
left=$(flux job timeleft)
[ -n "$left" ] || { echo "flux does not tell the time left" >&2; exit 2; }
end=$(($(date +%s) + left - 60))
flux hostlist --expand --delimiter='\n' local | sed 's/$/ slots=8/' > "$images/hosts"

skt-hpl launch --state "$images/launch" --hosts "$images/hosts" --json launch.json \
    --launcher-template 'flux run --nodes={nodes} --ntasks={ranks} --cores-per-task=8 --requires=hosts:{hosts} {command}' \
    -- --config cluster.toml ${level:+--level "$level"} \
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
