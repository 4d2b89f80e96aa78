#!/bin/bash
# What the scripts for batch systems have in common. They read this file in the folder from which
# the job is submitted, on a file system that all nodes see: another job may get other nodes, whose
# memory has nothing of this run.

# The variables are those of the scripts that read this file.
# shellcheck disable=SC2034

# The configuration is that of `plan`, which asks for checkpoints here also where they would cost
# more than they bring (leave --ft out to have it choose, and see LEVEL below).
config=${BASH_SOURCE[0]%/*}/cluster.toml
if [ ! -f "$config" ]; then
    echo "no $config: write it with the memory of a node in GiB and, without spare, --spares 0:" \
        "skt-hpl plan --nodes 8 --spares 1 --cores-per-node 64 --threads 8 --memory-gib 256" \
        "--ft self --out $config" >&2
    exit 2
fi

# Two such jobs at a time need a folder each, else one continues the other: set IMAGES.
images=${IMAGES:-${BASH_SOURCE[0]%/*}/images}
mkdir -p "$images"
touch "$images/begun"
# A configuration without checkpoints, which `plan` may choose, has no images: set LEVEL to nothing.
# `queue_again` looks for images in IMAGES, so another level's folder belongs there.
level=${LEVEL-global:$images}

# What `launch` does when a node is lost and no spare is left: stop, wait for the node, or spread its
# ranks over other nodes, for which `plan --survive-without-spares 1` leaves memory.
no_spare=${NO_SPARE:-stop}

# end_in SECONDS: sets `end`, before which the run saves its state, a minute before the job ends.
end_in() {
    [ -n "$1" ] || { echo "the batch system does not report the time left" >&2; exit 2; }
    end=$(($(date +%s) + $1 - 60))
}

# The job has a result, or cannot have one.
end_with() { rm -f "$images/failed"; exit "$1"; }

# repeat COMMAND: a launcher that ends when a rank or a node is lost, up to three times.
repeat() {
    for _ in 1 2 3; do
        "$@"
        code=$?
        # 0: passed; 1: a residual failed; 2: bad input; 75: the time is over or a rank failed,
        # another job continues. 126 and 127: the program does not start.
        # All others: a rank or a node was lost, and the same command continues here.
        case $code in 0 | 1 | 2 | 126 | 127) end_with "$code" ;; 75) break ;; esac
    done
}

# once COMMAND: `skt-hpl launch`, which repeats by itself. 75: the time is over, or no spare is left.
once() {
    "$@"
    code=$?
    [ "$code" = 75 ] || end_with "$code"
}

# queue_again [COMMAND]: ends the job with 75, after the command has queued the next one.
queue_again() {
    # The next job continues from the images. Those of a second epoch show that the first are whole:
    # images that fail leave files, too. After three jobs in a row without them no other is queued.
    local epochs
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
    "$@" || { echo "no further job: $1 failed" >&2; exit 2; }
    exit 75
}
