/* Rank 1 comes to its checkpoint when there is a file of the argument's name; the others wait for
 * it there, which rank 0 says before. The result is a sum over all ranks. */
#include <stdio.h>
#include <unistd.h>

#include <mpi.h>
#include <skt.h>

static void need(int code) {
    if (code == SKT_SUCCESS) return;
    fprintf(stderr, "%s: %s\n", skt_error(code), skt_message());
    MPI_Abort(MPI_COMM_WORLD, 75);
}

int main(int argc, char **argv) {
    int rank, size, sum;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int mine = rank + 1;
    need(skt_init(MPI_COMM_WORLD, sizeof mine, NULL));
    need(skt_protect(0, &mine, 1, sizeof mine));
    if (rank == 0) fprintf(stderr, "waits\n");
    while (rank == 1 && argc > 1 && access(argv[1], F_OK) != 0) usleep(1000);
    need(skt_checkpoint());
    MPI_Reduce(&mine, &sum, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("sum %d of %d ranks\n", sum, size);
    fflush(stdout);
    need(skt_finalize(1));
    return MPI_Finalize();
}
