/* Linked into a program with --wrap=MPI_Sendrecv: each exchange takes a millisecond more, so that
 * on any machine the program runs for as long as a test needs to do something to it. */
#include <mpi.h>
#include <unistd.h>

int __real_MPI_Sendrecv(const void *, int, MPI_Datatype, int, int, void *, int, MPI_Datatype, int,
                        int, MPI_Comm, MPI_Status *);

int __wrap_MPI_Sendrecv(const void *from, int count, MPI_Datatype type, int to, int tag, void *into,
                        int room, MPI_Datatype kind, int source, int mark, MPI_Comm comm,
                        MPI_Status *status) {
    usleep(1000);
    return __real_MPI_Sendrecv(from, count, type, to, tag, into, room, kind, source, mark, comm,
                               status);
}
