/* Gravity between all pairs of bodies on an OpenCL device that survives the loss of ranks: the
 * computation of examples/fortran/nbody.f90. Positions, velocities and accelerations stay in
 * buffers of the device; the host passes the positions around the ring of ranks.
 *
 *     mpirun -np 4 nbody_opencl 400 200     kill -9 a rank: the same command continues
 *
 * The numbers are steps, and bodies of each rank. Double precision, and no operation is contracted:
 * after a restart the result has the same bits. */
#define CL_TARGET_OPENCL_VERSION 120
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <CL/cl.h>
#include <mpi.h>
#include <skt.h>

/* RESTART: the exit code of a job that is to be started again. MOST: platforms and devices. */
enum { EVERY = 20, RESTART = 75, MOST = 64 };

static const char *const kernels =
    "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
    "#pragma OPENCL FP_CONTRACT OFF\n"
    /* Adds to the accelerations what other bodies cause; one item for each body. */
    "kernel void attract(global const double *x, global const double *others, global double *a,\n"
    "                    const int bodies, const double all, const double softening) {\n"
    "    const size_t i = get_global_id(0);\n"
    "    const double3 mine = vload3(i, x);\n"
    "    double3 sum = vload3(i, a);\n"
    "    for (int j = 0; j < bodies; j++) {\n"
    "        const double3 d = vload3(j, others) - mine;\n"
    "        const double r2 = d.x * d.x + d.y * d.y + d.z * d.z + softening * softening;\n"
    "        sum += d / (r2 * sqrt(r2) * all);\n"
    "    }\n"
    "    vstore3(sum, i, a);\n"
    "}\n"
    /* One item for each coordinate. */
    "kernel void advance(global double *x, global double *v, global const double *a,\n"
    "                    const double dt) {\n"
    "    const size_t i = get_global_id(0);\n"
    "    v[i] += dt * a[i];\n"
    "    x[i] += dt * v[i];\n"
    "}\n";

static const cl_double dt = 1e-3, softening = 1e-2, zero = 0;
static int rank, ranks, bodies;
static size_t vectors; /* the bytes of three coordinates of each body of a rank */
/* How the job ends if the device fails: before the first step a new start would not help. */
static int after_failure = 2;

static cl_context context;
static cl_command_queue queue;
static cl_program program;
static cl_kernel attract, advance;
static cl_mem x, v, a, others;

/* Ends the job where a call of the library has failed: to be started again where something was
 * lost. */
static void need(int code) {
    int lost = code == SKT_ERR_LOST || code == SKT_ERR_TIMEOUT;
    if (code != SKT_SUCCESS) {
        fprintf(stderr, "nbody_opencl: %s: %s\n", skt_error(code), skt_message());
        MPI_Abort(MPI_COMM_WORLD, lost ? RESTART : code == SKT_ERR_DEVICE ? after_failure : 2);
    }
}

/* Ends the job where a call of OpenCL has failed. */
static void check(cl_int code, const char *call) {
    if (code != CL_SUCCESS) {
        fprintf(stderr, "nbody_opencl: %s: error %d of OpenCL\n", call, (int)code);
        MPI_Abort(MPI_COMM_WORLD, after_failure);
    }
}

/* Ranks of a node take the devices of the first platform that has any in turn. */
static cl_device_id choose_device(void) {
    cl_platform_id platforms[MOST];
    cl_device_id devices[MOST];
    cl_uint count = 0, found = 0;
    cl_int code = CL_DEVICE_NOT_FOUND;
    MPI_Comm node;
    int at;
    check(clGetPlatformIDs(MOST, platforms, &count), "clGetPlatformIDs (`clinfo -l` lists devices)");
    for (cl_uint n = 0; code != CL_SUCCESS && n < count && n < MOST; n++)
        code = clGetDeviceIDs(platforms[n], CL_DEVICE_TYPE_ALL, MOST, devices, &found);
    check(code, "clGetDeviceIDs");
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &at);
    MPI_Comm_free(&node);
    return devices[(cl_uint)at % (found < MOST ? found : MOST)];
}

/* Ends the job if the device has no double precision. */
static void need_double(cl_device_id device) {
    static char name[256];
    cl_device_fp_config doubles = 0;
    clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof name - 1, name, NULL);
    clGetDeviceInfo(device, CL_DEVICE_DOUBLE_FP_CONFIG, sizeof doubles, &doubles, NULL);
    if (doubles == 0) {
        fprintf(stderr, "nbody_opencl: the device %s has no double precision (cl_khr_fp64)\n", name);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
}

/* Opens the device and compiles the kernels for it. */
static void start_device(void) {
    cl_device_id device = choose_device();
    cl_int code;
    need_double(device);
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    check(code, "clCreateContext");
    queue = clCreateCommandQueue(context, device, 0, &code);
    check(code, "clCreateCommandQueue");
    program = clCreateProgramWithSource(context, 1, (const char **)&kernels, NULL, &code);
    check(code, "clCreateProgramWithSource");
    code = clBuildProgram(program, 1, &device, "-cl-std=CL1.2", NULL, NULL);
    if (code == CL_BUILD_PROGRAM_FAILURE) {
        static char log[65536];
        clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof log - 1, log, NULL);
        fprintf(stderr, "nbody_opencl: %s\n", log);
    }
    check(code, "clBuildProgram");
    attract = clCreateKernel(program, "attract", &code);
    check(code, "clCreateKernel");
    advance = clCreateKernel(program, "advance", &code);
    check(code, "clCreateKernel");
}

static cl_mem buffer(void) {
    cl_int code;
    cl_mem made = clCreateBuffer(context, CL_MEM_READ_WRITE, vectors, NULL, &code);
    check(code, "clCreateBuffer");
    return made;
}

static void argument(cl_kernel of, cl_uint index, size_t size, const void *value) {
    check(clSetKernelArg(of, index, size, value), "clSetKernelArg");
}

static void set_arguments(void) {
    cl_double all = (double)ranks * bodies;
    argument(attract, 0, sizeof x, &x);
    argument(attract, 1, sizeof others, &others);
    argument(attract, 2, sizeof a, &a);
    argument(attract, 3, sizeof(cl_int), &bodies);
    argument(attract, 4, sizeof all, &all);
    argument(attract, 5, sizeof softening, &softening);
    argument(advance, 0, sizeof x, &x);
    argument(advance, 1, sizeof v, &v);
    argument(advance, 2, sizeof a, &a);
    argument(advance, 3, sizeof dt, &dt);
}

/* Waits for what the queue has, and reads a buffer. */
static void read_vectors(cl_mem memory, double *into) {
    check(clEnqueueReadBuffer(queue, memory, CL_TRUE, 0, vectors, into, 0, NULL, NULL),
          "clEnqueueReadBuffer");
}

static void write_vectors(cl_mem memory, const double *from) {
    check(clEnqueueWriteBuffer(queue, memory, CL_TRUE, 0, vectors, from, 0, NULL, NULL),
          "clEnqueueWriteBuffer");
}

static void set_zero(cl_mem memory) {
    check(clEnqueueFillBuffer(queue, memory, &zero, sizeof zero, 0, vectors, 0, NULL, NULL),
          "clEnqueueFillBuffer");
}

static void enqueue(cl_kernel kernel, size_t items) {
    check(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL),
          "clEnqueueNDRangeKernel");
}

/* Places this rank's bodies on a spiral, at rest. */
static void begin(double *positions) {
    for (int i = 0; i < bodies; i++) {
        double t = ((double)rank * bodies + i + 1) / ((double)ranks * bodies);
        positions[3 * i] = t * cos(40 * t);
        positions[3 * i + 1] = t * sin(40 * t);
        positions[3 * i + 2] = t * (0.1 * cos(7 * t));
    }
    write_vectors(x, positions);
    set_zero(v);
}

/* One step. The others' positions pass around a ring while the device computes with the last ones,
 * in an order that depends on the ranks alone. */
static void advance_bodies(double *theirs, double *next, MPI_Comm comm) {
    set_zero(a);
    read_vectors(x, theirs);
    for (int hop = 1; hop <= ranks; hop++) {
        write_vectors(others, theirs);
        enqueue(attract, (size_t)bodies);
        if (hop == ranks) break;
        check(clFlush(queue), "clFlush");
        MPI_Sendrecv(theirs, 3 * bodies, MPI_DOUBLE, (rank + 1) % ranks, 1, next, 3 * bodies,
                     MPI_DOUBLE, (rank + ranks - 1) % ranks, 1, comm, MPI_STATUS_IGNORE);
        double *passed = theirs;
        theirs = next;
        next = passed;
    }
    enqueue(advance, 3 * (size_t)bodies);
}

/* The sum of squares of a buffer. */
static double squares_of(cl_mem memory, double *values) {
    double sum = 0;
    read_vectors(memory, values);
    for (size_t i = 0; i < vectors / sizeof *values; i++) sum += values[i] * values[i];
    return sum;
}

/* Prints a sum over all bodies, in the order of the ranks. */
static void report(double *values, MPI_Comm comm) {
    double all = 0, *each = malloc((size_t)ranks * sizeof *each);
    double mine = squares_of(x, values) + squares_of(v, values);
    MPI_Gather(&mine, 1, MPI_DOUBLE, each, 1, MPI_DOUBLE, 0, comm);
    for (int i = 0; rank == 0 && i < ranks; i++) all += each[i];
    if (rank == 0) printf("sum of squares %.17g\n", all);
    fflush(stdout);
    free(each);
}

int main(int argc, char **argv) {
    long steps = argc > 1 ? atol(argv[1]) : 400, step = 0;
    MPI_Comm comm = MPI_COMM_WORLD;
    skt_mover mover;
    int64_t found = 0;

    bodies = argc > 2 ? atoi(argv[2]) : 200;
    vectors = 3 * (size_t)bodies * sizeof(double);
    MPI_Init(&argc, &argv);
    start_device();
    char problem[64];
    snprintf(problem, sizeof problem, "application = \"nbody_opencl %d\"", bodies);
    int code = skt_init(comm, 2 * vectors + sizeof step, problem);
    if (code == SKT_ENDED) return MPI_Finalize();
    need(code);
    need(skt_comm(&comm));
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    x = buffer();
    v = buffer();
    a = buffer();
    others = buffer();
    set_arguments();
    double *theirs = malloc(vectors), *next = malloc(vectors);
    if (theirs == NULL || next == NULL) MPI_Abort(MPI_COMM_WORLD, 2);

    need(skt_mover_opencl(queue, &mover));
    need(skt_protect(0, &step, 1, sizeof step));
    need(skt_protect_with(1, x, 3 * (size_t)bodies, sizeof(double), &mover));
    need(skt_protect_with(2, v, 3 * (size_t)bodies, sizeof(double), &mover));
    need(skt_found(&found));
    if (found > 0) {
        need(skt_restore());
        if (rank == 0) fprintf(stderr, "continues from step %ld\n", step);
    } else {
        begin(theirs);
    }

    for (after_failure = RESTART; step < steps; step++) {
        if (step > 0 && step % EVERY == 0) {
            need(skt_checkpoint());
            if (rank == 0) fprintf(stderr, "checkpoint at step %ld\n", step);
        }
        advance_bodies(theirs, next, comm);
    }

    report(theirs, comm);
    need(skt_finalize(1));
    free(theirs);
    free(next);
    return MPI_Finalize();
}
