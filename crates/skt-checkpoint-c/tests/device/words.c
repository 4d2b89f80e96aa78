/* A client of the checkpoints whose words are in the memory of an NVIDIA GPU. It needs the driver
 * alone: no toolkit, no kernels. In each step the words move on by one block within the device, and
 * the first block is received from the rank before. All is enqueued in one stream, and nothing waits
 * for the last copies of a step: a checkpoint has to.
 *
 *     mpirun -np 2 words STEPS EVERY KIB device|host
 *
 * EVERY: steps between two checkpoints; KIB: words of a rank, several blocks of 16 KiB; host: they
 * are in host memory, for comparison. kill -9 a rank: the same command continues, with the same
 * bits. Rank 0 prints the median seconds of a checkpoint, without the first one of each start.
 * Exit codes: 2: no driver or device, before a run begins; 75: start the same command again. */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>
#include <skt.h>

#include "driver.h"

enum { BLOCK = 16 << 10, WORDS = BLOCK / 8, TIMES = 1000, RESTART = 75 };

static int rank, ranks, on_device;
static size_t bytes;
static stream_t stream;
/* The words, and as many more; sent and received blocks in pinned memory. */
static address words, moved;
static uint64_t *host_words, *host_moved, *outgoing, *incoming;

static void need(int code) {
    int lost = code == SKT_ERR_LOST || code == SKT_ERR_TIMEOUT;
    if (code != SKT_SUCCESS) {
        fprintf(stderr, "words: %s: %s\n", skt_error(code), skt_message());
        MPI_Abort(MPI_COMM_WORLD, lost ? RESTART : 2);
    }
}

static void *need_memory(size_t size) {
    void *memory = malloc(size);
    if (memory == NULL) MPI_Abort(MPI_COMM_WORLD, 2);
    return memory;
}

static int place_on_node(void) {
    MPI_Comm node;
    int place;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &place);
    MPI_Comm_free(&node);
    return place;
}

static void allocate(void) {
    if (!on_device) {
        host_words = need_memory(bytes);
        host_moved = need_memory(bytes);
        outgoing = need_memory(BLOCK);
        incoming = need_memory(BLOCK);
        return;
    }
    NEED(cu.stream_create(&stream, NON_BLOCKING));
    NEED(cu.alloc(&words, bytes));
    NEED(cu.alloc(&moved, bytes));
    NEED(cu.host_alloc((void **)&outgoing, BLOCK, 0));
    NEED(cu.host_alloc((void **)&incoming, BLOCK, 0));
}

/* Words that depend on rank and place. */
static void begin(void) {
    uint64_t *all = on_device ? need_memory(bytes) : host_words;
    uint64_t factor = (uint64_t)(2 * rank + 1) * 0x9e3779b97f4a7c15u;
    for (size_t n = 0; n < bytes / 8; n++) all[n] = (n + 1) * factor;
    if (!on_device) return;
    NEED(cu.to_device(words, all, bytes, stream));
    NEED(cu.stream_wait(stream));
    free(all);
}

/* Passes the last block on to the next rank, changed by the step. */
static void exchange(MPI_Comm comm, long step) {
    if (on_device) {
        NEED(cu.to_host(outgoing, words + bytes - BLOCK, BLOCK, stream));
        NEED(cu.stream_wait(stream));
    } else {
        memcpy(outgoing, (char *)host_words + bytes - BLOCK, BLOCK);
    }
    for (size_t n = 0; n < WORDS; n++) {
        outgoing[n] = outgoing[n] * 6364136223846793005u + (uint64_t)step;
    }
    MPI_Sendrecv(outgoing, WORDS, MPI_UINT64_T, (rank + 1) % ranks, 1, incoming, WORDS,
                 MPI_UINT64_T, (rank + ranks - 1) % ranks, 1, comm, MPI_STATUS_IGNORE);
}

static void iterate(MPI_Comm comm, long step) {
    exchange(comm, step);
    if (on_device) {
        NEED(cu.within(moved + BLOCK, words, bytes - BLOCK, stream));
        NEED(cu.to_device(moved, incoming, BLOCK, stream));
        NEED(cu.within(words, moved, bytes, stream));
    } else {
        memcpy((char *)host_moved + BLOCK, host_words, bytes - BLOCK);
        memcpy(host_moved, incoming, BLOCK);
        memcpy(host_words, host_moved, bytes);
    }
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Takes a checkpoint, and keeps its seconds. */
static void save(MPI_Comm comm, long step, double *seconds, int *times) {
    MPI_Barrier(comm);
    double begun = MPI_Wtime();
    need(skt_checkpoint());
    if (*times < TIMES) seconds[(*times)++] = MPI_Wtime() - begun;
    if (rank == 0) fprintf(stderr, "checkpoint at step %ld\n", step);
}

static void report(MPI_Comm comm, double *seconds, int times) {
    uint64_t mine = 0, *each = need_memory((size_t)ranks * sizeof *each);
    uint64_t *all = on_device ? need_memory(bytes) : host_words;
    if (on_device) {
        NEED(cu.to_host(all, words, bytes, stream));
        NEED(cu.stream_wait(stream));
    }
    for (size_t n = 0; n < bytes / 8; n++) mine = (mine ^ (all[n] >> 29)) * 0x100000001b3u + all[n];
    MPI_Gather(&mine, 1, MPI_UINT64_T, each, 1, MPI_UINT64_T, 0, comm);
    if (rank == 0) {
        printf("sum of words");
        for (int n = 0; n < ranks; n++) printf(" %016llx", (unsigned long long)each[n]);
        printf("\n");
        if (times > 1) {
            qsort(seconds + 1, (size_t)times - 1, sizeof *seconds, compare);
            fprintf(stderr, "a checkpoint takes %.6f s, the first one %.6f s\n",
                    seconds[1 + (times - 1) / 2], seconds[0]);
        }
        fflush(stdout);
    }
    free(each);
    if (on_device) free(all);
}

int main(int argc, char **argv) {
    static double seconds[TIMES];
    long step = 0, steps, every;
    int64_t found = 0;
    int times = 0;
    MPI_Comm comm = MPI_COMM_WORLD;

    if (argc != 5 || strlen(argv[3]) > 12 ||
        (bytes = (size_t)atol(argv[3]) << 10) < 2 * BLOCK || bytes % BLOCK != 0 ||
        (every = atol(argv[2])) < 1 ||
        (strcmp(argv[4], "device") != 0 && strcmp(argv[4], "host") != 0)) {
        fprintf(stderr, "usage: words STEPS EVERY KIB device|host; KIB: 32, 48, 64, ...\n");
        return 2;
    }
    steps = atol(argv[1]);
    on_device = strcmp(argv[4], "device") == 0;
    MPI_Init(&argc, &argv);
    if (on_device) take_device(place_on_node());
    char problem[80];
    snprintf(problem, sizeof problem, "application = \"words %s %s\"", argv[3], argv[4]);
    int code = skt_init(comm, bytes + sizeof step, problem);
    if (code == SKT_ENDED) return MPI_Finalize();
    need(code);
    need(skt_comm(&comm));
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    allocate();
    need(skt_protect(0, &step, 1, sizeof step));
    if (on_device) {
        skt_mover mover;
        need(skt_mover_cuda(stream, &mover));
        need(skt_protect_with(1, (void *)(uintptr_t)words, bytes / 8, 8, &mover));
    } else {
        need(skt_protect(1, host_words, bytes / 8, 8));
    }
    need(skt_found(&found));
    if (found > 0) {
        need(skt_restore());
        if (rank == 0) fprintf(stderr, "continues from step %ld\n", step);
    } else {
        begin();
    }

    for (; step < steps; step++) {
        if (step > 0 && step % every == 0) save(comm, step, seconds, &times);
        iterate(comm, step);
    }
    report(comm, seconds, times);
    need(skt_finalize(1));
    return MPI_Finalize();
}
