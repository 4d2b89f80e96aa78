/* Reports a run. Then rank 0 ends by a signal or with a code, as its argument says, and the others
 * wait until their launcher ends them. */
#define _POSIX_C_SOURCE 200112L
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mpi.h>
#include <skt.h>

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "0";
    long number = 1;
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (skt_init(MPI_COMM_WORLD, sizeof number, NULL) != SKT_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 2);
    skt_protect(0, &number, 1, sizeof number);
    skt_checkpoint();
    if (skt_finalize(1) != SKT_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 2);
    if (rank == 0 && !strcmp(how, "segv")) {
        /* Not that of the MPI library, which reports it. */
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
    }
    if (rank == 0) exit(atoi(how));
    /* The launcher ends a job of which a rank has ended without MPI_Finalize. */
    for (;;) pause();
}
