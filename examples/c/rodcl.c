/* The rod of docs/c-interface.md in a buffer of OpenCL. The lines that end with a plus make it
 * survive. */
#define CL_TARGET_OPENCL_VERSION 120
#include <stdint.h>
#include <stdio.h>

#include <CL/cl.h>
#include <mpi.h>
#include <skt.h>                                                               // +

enum { CELLS = 20000, STEPS = 4000 };
static float u[CELLS];
static const char *source =
    "kernel void diffuse(global const float *u, global float *next, float before) {"
    "    size_t i = get_global_id(0);"
    "    next[i] = u[i] + 0.25f * ((i > 0 ? u[i - 1] : before) - u[i]);"
    "}";

int main(int argc, char **argv) {
    long step = 0;
    size_t cells = CELLS, end = sizeof u - sizeof *u;
    int rank, size;
    cl_platform_id platform = NULL;
    cl_device_id device = NULL;
    int64_t found;                                                             // +
    skt_mover mover;                                                           // +
    MPI_Comm comm = MPI_COMM_WORLD;
    MPI_Init(&argc, &argv);
    int code = skt_init(comm, sizeof u + sizeof step,                          // +
                        "application = 'rod of 20000 cells'");                 // +
    if (code != SKT_SUCCESS) {                                                 // +
        fprintf(stderr, "%s: %s\n", skt_error(code), skt_message());           // +
        MPI_Finalize();                                                        // +
        return code != SKT_ENDED;                                              // +
    }                                                                          // +
    skt_comm(&comm);                                                           // +
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);

    if (clGetPlatformIDs(1, &platform, NULL) != CL_SUCCESS ||
        clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL) != CL_SUCCESS) {
        fprintf(stderr, "no OpenCL device\n");
        MPI_Abort(comm, 2);
    }
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, NULL);
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, NULL);
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, NULL);
    clBuildProgram(program, 1, &device, NULL, NULL, NULL);
    cl_kernel kernel = clCreateKernel(program, "diffuse", NULL);
    u[0] = 1.0f + (float)rank;
    cl_mem now = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof u, u, NULL);
    cl_mem next = clCreateBuffer(context, CL_MEM_READ_WRITE, sizeof u, NULL, NULL);
    clSetKernelArg(kernel, 0, sizeof now, &now);
    clSetKernelArg(kernel, 1, sizeof next, &next);

    if (skt_mover_opencl(queue, &mover) != SKT_SUCCESS) {                      // +
        fprintf(stderr, "%s\n", skt_message());                                // +
        MPI_Abort(comm, 2);                                                    // +
    }                                                                          // +
    skt_protect(0, &step, 1, sizeof step);                                     // +
    skt_protect_with(1, now, CELLS, sizeof *u, &mover);                        // +
    skt_found(&found);                                                         // +
    if (found > 0 && skt_restore() != SKT_SUCCESS) MPI_Abort(comm, 2);         // +
    if (found > 0 && rank == 0) fprintf(stderr, "continues from step %ld\n", step); // +
    for (; step < STEPS; step++) {
        if (step % 200 == 0 && step > 0) {                                     // +
            if (skt_checkpoint() != SKT_SUCCESS) MPI_Abort(comm, 75);          // +
            if (rank == 0) fprintf(stderr, "checkpoint at step %ld\n", step);  // +
        }                                                                      // +
        float before = 0, last;
        clEnqueueReadBuffer(queue, now, CL_TRUE, end, sizeof last, &last, 0, NULL, NULL);
        MPI_Sendrecv(&last, 1, MPI_FLOAT, (rank + 1) % size, 1, &before, 1, MPI_FLOAT,
                     (rank + size - 1) % size, 1, comm, MPI_STATUS_IGNORE);
        clSetKernelArg(kernel, 2, sizeof before, &before);
        clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &cells, NULL, 0, NULL, NULL);
        clEnqueueCopyBuffer(queue, next, now, 0, 0, sizeof u, 0, NULL, NULL);
    }
    clEnqueueReadBuffer(queue, now, CL_TRUE, 0, sizeof u, u, 0, NULL, NULL);
    double mine = 0, sum = 0;
    for (int i = 0; i < CELLS; i++) mine += (double)u[i] * (double)u[i];
    MPI_Reduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, comm);
    if (rank == 0) printf("sum of squares %.10g\n", sum);
    fflush(stdout);
    skt_finalize(1);                                                           // +
    return MPI_Finalize();
}
