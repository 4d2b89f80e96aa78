/* Begins a run with an option that one rank alone has: for each argument, a TOML text, first rank 0,
 * then the last rank. Each rank prints a line `RANK CODE TEXT` for each try. At last all have the
 * same options, and the run begins. */
#include <stdio.h>

#include <mpi.h>
#include <skt.h>

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 1; i < argc; i++) {
        for (int odd = 0; odd < size; odd += size - 1) {
            int code = skt_init(MPI_COMM_WORLD, 8000, rank == odd ? argv[i] : NULL);
            printf("%d %d %s\n", rank, code, skt_message());
            fflush(stdout);
            if (code == SKT_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 3);
        }
    }
    if (skt_init(MPI_COMM_WORLD, 8000, NULL) != SKT_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 4);
    skt_finalize(1);
    return MPI_Finalize();
}
