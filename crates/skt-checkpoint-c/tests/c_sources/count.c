/* Adds BY to a number in each of the steps that its first argument names, in RUNS runs one after the
 * other, and says nothing of what its data depends on. Other arguments count for nothing. */
#define _POSIX_C_SOURCE 200112L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <mpi.h>
#include <skt.h>

#ifndef BY
#define BY 1
#endif
#ifndef RUNS
#define RUNS 1
#endif

enum { EVERY = 50 };

static void need(int code) {
    if (code != SKT_SUCCESS) {
        fprintf(stderr, "count: %s: %s\n", skt_error(code), skt_message());
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
}

static void count(long steps) {
    long step = 0, number = 0;
    const struct timespec pause = {0, 1000000};
    MPI_Comm comm;
    int64_t found;
    int rank;
    need(skt_init(MPI_COMM_WORLD, sizeof step + sizeof number, NULL));
    need(skt_comm(&comm));
    MPI_Comm_rank(comm, &rank);
    need(skt_protect(0, &step, 1, sizeof step));
    need(skt_protect(1, &number, 1, sizeof number));
    need(skt_found(&found));
    if (found > 0) need(skt_restore());
    if (found > 0 && rank == 0) fprintf(stderr, "continues from step %ld\n", step);
    for (; step < steps; step++) {
        if (step % EVERY == 0 && step > 0) {
            need(skt_checkpoint());
            if (rank == 0) fprintf(stderr, "checkpoint at step %ld\n", step);
        }
        number += BY;
        nanosleep(&pause, NULL);
    }
    if (rank == 0) printf("sum of squares %ld\n", number);
    fflush(stdout);
    need(skt_finalize(1));
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    for (int run = 0; run < RUNS; run++) count(argc > 1 ? atol(argv[1]) : 0);
    return MPI_Finalize();
}
