/* The plate of examples/c/heat.c, for scripts/measure/compare-clients: saved by the library that is
 * linked, with the seconds of each checkpoint and of the restart.
 *
 *     mpirun -np 4 heat-... STEPS EVERY ROWS WIDTH    EVERY = 0: no checkpoint */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "saves.h"

static long rows, width;
static MPI_Comm comm;
static int rank, size;

void saves_fail(const char *what, int code) {
    fprintf(stderr, "refused: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, code);
    exit(code);
}

static double *row(double *h, long i) { return h + i * width; }

/* Receives the neighbours' adjacent rows. */
static void exchange(double *h) {
    int up = rank > 0 ? rank - 1 : MPI_PROC_NULL, down = rank + 1 < size ? rank + 1 : MPI_PROC_NULL;
    MPI_Sendrecv(row(h, 1), (int)width, MPI_DOUBLE, up, 1, row(h, rows + 1), (int)width, MPI_DOUBLE,
                 down, 1, comm, MPI_STATUS_IGNORE);
    MPI_Sendrecv(row(h, rows), (int)width, MPI_DOUBLE, down, 2, row(h, 0), (int)width, MPI_DOUBLE,
                 up, 2, comm, MPI_STATUS_IGNORE);
}

/* One step of Jacobi's iteration from h to g, and back. */
static void iterate(double *g, double *h) {
    for (long i = 1; i <= rows; i++) {
        double *above = row(h, i - 1), *here = row(h, i), *below = row(h, i + 1), *to = row(g, i);
        for (long j = 1; j < width - 1; j++) {
            to[j] = 0.25 * (above[j] + below[j] + here[j - 1] + here[j + 1]);
        }
    }
    for (long i = 1; i <= rows; i++) {
        memcpy(row(h, i) + 1, row(g, i) + 1, (size_t)(width - 2) * sizeof(double));
    }
}

/* A hash (FNV-1a) of the bits of all ranks' rows, on rank 0. */
static uint64_t hash(double *h) {
    uint64_t mine = 14695981039346656037u, all = mine, *each = malloc((size_t)size * sizeof *each);
    for (long i = width; i < (rows + 1) * width; i++) {
        uint64_t bits;
        memcpy(&bits, h + i, sizeof bits);
        mine = (mine ^ bits) * 1099511628211u;
    }
    MPI_Gather(&mine, 1, MPI_UINT64_T, each, 1, MPI_UINT64_T, 0, comm);
    for (int i = 0; rank == 0 && i < size; i++) all = (all ^ each[i]) * 1099511628211u;
    free(each);
    return all;
}

/* The seconds since `start` until all ranks are here. */
static double seconds(double start) {
    MPI_Barrier(comm);
    return MPI_Wtime() - start;
}

int main(int argc, char **argv) {
    long steps = argc > 1 ? atol(argv[1]) : 400, every = argc > 2 ? atol(argv[2]) : 20, step = 0;
    rows = argc > 3 ? atol(argv[3]) : 200;
    width = argc > 4 ? atol(argv[4]) : 512;
    size_t doubles = (size_t)((rows + 2) * width);
    MPI_Init(&argc, &argv);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    comm = saves_open(doubles);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    double *h = saves_plate(doubles, &step), *g = calloc(doubles, sizeof *g);
    int continues = saves_restore();
    double took = seconds(start);
    if (rank == 0 && continues) fprintf(stderr, "continues from step %ld in %.6f s\n", step, took);
    if (rank == 0 && !continues) fprintf(stderr, "begins in %.6f s\n", took);
    for (long j = 0; !continues && rank == 0 && j < width; j++) h[j] = 100;

    double begun = MPI_Wtime();
    for (long from = step; step < steps; step++) {
        if (every > 0 && step % every == 0 && step > from) {
            MPI_Barrier(comm);
            start = MPI_Wtime();
            saves_checkpoint(step);
            took = seconds(start);
            if (rank == 0) fprintf(stderr, "checkpoint at step %ld in %.6f s\n", step, took);
        }
        exchange(h);
        iterate(g, h);
        saves_step(step + 1 == steps);
    }
    took = seconds(begun);
    if (rank == 0) fprintf(stderr, "computes for %.6f s\n", took);
    uint64_t bits = hash(h);
    if (rank == 0) printf("result %016llx\n", (unsigned long long)bits);
    fflush(stdout);
    saves_close();
    free(g);
    return MPI_Finalize();
}
