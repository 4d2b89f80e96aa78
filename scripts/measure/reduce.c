/* Seconds that a group needs to encode its data with MPI_Reduce, as Tang et al. do (section 6): the
 * data of each of n ranks is cut into n - 1 stripes, and each rank is the root of one reduction.
 * Prints, for the bitwise exclusive or and for the sum in floating point, the median over the
 * repeats of the slowest rank's seconds, from a barrier on. The data are those of
 * examples/encode.rs.
 *
 *   mpicc -O2 reduce.c -o reduce && mpirun -np 4 ./reduce MIB REPEATS
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double encode(double *data, double *parity, int count, MPI_Datatype type, MPI_Op op)
{
    int ranks, rank;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    double *zeros = data, *stripe = data + count;
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime(), seconds, slowest;
    for (int root = 0; root < ranks; root++) {
        double *send = zeros;
        if (root != rank) {
            send = stripe;
            stripe += count;
        }
        MPI_Reduce(send, parity, count, type, op, root, MPI_COMM_WORLD);
    }
    seconds = MPI_Wtime() - start;
    MPI_Allreduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

int main(int argc, char **argv)
{
    int ranks, rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    double mib = argc == 3 ? atof(argv[1]) : 0.0;
    int repeats = argc == 3 ? atoi(argv[2]) : 0;
    if (ranks < 2 || mib <= 0.0 || repeats < 1) {
        fprintf(stderr, "usage: mpirun -np 2 (or more) reduce MIB REPEATS\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int count = (int)(mib * 1048576.0 / 8.0 / (ranks - 1));
    /* The first stripe stays zero: the root's own part of the sum. */
    double *data = calloc((size_t)count * ranks, 8), *parity = calloc(count, 8);
    double *seconds = malloc(repeats * sizeof *seconds);
    if (!data || !parity || !seconds) {
        fprintf(stderr, "reduce: no memory for %g MiB a rank\n", mib);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (size_t i = 0; i < (size_t)count * (ranks - 1); i++)
        data[count + i] = ((i + rank) * 0x9e3779b97f4a7c15u >> 11) / 9007199254740992.0 - 0.5;
    struct { const char *name; MPI_Datatype type; MPI_Op op; } codes[] = {
        {"xor", MPI_UINT64_T, MPI_BXOR},
        {"sum", MPI_DOUBLE, MPI_SUM},
    };
    for (int c = 0; c < 2; c++) {
        /* The first one touches the memory. */
        encode(data, parity, count, codes[c].type, codes[c].op);
        for (int i = 0; i < repeats; i++)
            seconds[i] = encode(data, parity, count, codes[c].type, codes[c].op);
        qsort(seconds, repeats, sizeof *seconds, compare);
        if (rank == 0)
            printf("%s %.6f\n", codes[c].name, seconds[repeats / 2]);
    }
    free(data);
    free(parity);
    free(seconds);
    MPI_Finalize();
    return 0;
}
