/* Included before a client on an OpenCL device: callbacks of its own in place of those of the
 * library. With OWN_MOVER_FAILS=N the N-th copy to the host of rank 2 fails, as if the device had
 * no room for it. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <mpi.h>
#include <skt.h>
#include <stdlib.h>

static int own_to_host(void *queue, void *host, const void *memory, size_t offset, size_t bytes) {
    static long copies;
    const char *fails = getenv("OWN_MOVER_FAILS");
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 2 && fails != NULL && ++copies == atol(fails)) return CL_OUT_OF_RESOURCES;
    return clEnqueueReadBuffer(queue, (cl_mem)memory, CL_TRUE, offset, bytes, host, 0, NULL, NULL);
}

static int own_from_host(void *queue, void *memory, const void *host, size_t offset, size_t bytes) {
    return clEnqueueWriteBuffer(queue, memory, CL_TRUE, offset, bytes, host, 0, NULL, NULL);
}

static const char *own_error(void *queue, int code) {
    (void)queue;
    return code == CL_OUT_OF_RESOURCES ? "CL_OUT_OF_RESOURCES" : NULL;
}

static int own_mover(cl_command_queue queue, skt_mover *mover) {
    *mover = (skt_mover){own_to_host, own_from_host, own_error, queue};
    return SKT_SUCCESS;
}
#define skt_mover_opencl own_mover
