/* Preloaded into a program over MPI, in C or Fortran: rank 1 comes out of MPI_Init seconds after the
 * others. */
#include <mpi.h>
#include <unistd.h>

enum { SECONDS = 4 };

#pragma weak pmpi_init_
void pmpi_init_(MPI_Fint *code);
void mpi_init_(MPI_Fint *code);

static void come_late(void) {
    int rank;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 1) sleep(SECONDS);
}

int MPI_Init(int *argc, char ***argv) {
    int code = PMPI_Init(argc, argv);
    come_late();
    return code;
}

void mpi_init_(MPI_Fint *code) {
    pmpi_init_(code);
    come_late();
}
