/* The Himeno benchmark on an OpenCL device that survives the loss of ranks: the computation of
 * himeno.c, whose method and grid it has. All arrays stay in buffers of the device; in an iteration
 * the host gets the planes that neighbours need, and sums.
 *
 *     mpirun -np 4 himeno_opencl 200 32     kill -9 a rank: the same command continues
 *
 * A checkpoint is begun in one iteration and completed some iterations later. The beginning copies
 * the pressure from the device; while the device computes on, the host encodes. Floating-point
 * operations have one order, and none are contracted: after a restart, and on any device that
 * rounds as IEEE 754 requires, the sum of squares has the bits of himeno.c. */
#define CL_TARGET_OPENCL_VERSION 120
#include <stdio.h>
#include <stdlib.h>

#include <CL/cl.h>
#include <mpi.h>
#include <skt.h>

/* RESTART: the exit code of a job that is to be started again. MOST: platforms and devices. PARTS:
 * of each sum on the device. */
enum { EVERY = 20, OVERLAP = 4, RESTART = 75, MOST = 64, TERMS = 12, PARTS = 1024 };

static const char *const kernels =
    "#pragma OPENCL FP_CONTRACT OFF\n"
    /* The change that the equation requires at a point: one item for each point inside. */
    "kernel void require(global const float *a0, global const float *a1, global const float *a2,\n"
    "                    global const float *a3, global const float *b0, global const float *b1,\n"
    "                    global const float *b2, global const float *c0, global const float *c1,\n"
    "                    global const float *c2, global const float *source,\n"
    "                    global const float *inside, global const float *p,\n"
    "                    global float *change, const int lines, const int width) {\n"
    "    const size_t k = 1, j = width, i = j * lines;\n"
    "    const size_t at = (get_global_id(2) + 1) * i + (get_global_id(1) + 1) * j +\n"
    "                      get_global_id(0) + 1;\n"
    "    float sum = a0[at] * p[at + i] + a1[at] * p[at + j] + a2[at] * p[at + k] +\n"
    "                b0[at] * (p[at + i + j] - p[at + i - j] - p[at - i + j] + p[at - i - j]) +\n"
    "                b1[at] * (p[at + j + k] - p[at - j + k] - p[at + j - k] + p[at - j - k]) +\n"
    "                b2[at] * (p[at + i + k] - p[at - i + k] - p[at + i - k] + p[at - i - k]) +\n"
    "                c0[at] * p[at - i] + c1[at] * p[at - j] + c2[at] * p[at - k] + source[at];\n"
    "    change[at] = (sum * a3[at] - p[at]) * inside[at];\n"
    "}\n"
    /* The change of points on the boundary is zero. */
    "kernel void apply(global float *p, global const float *change, const float omega) {\n"
    "    const size_t at = get_global_id(0);\n"
    "    p[at] += omega * change[at];\n"
    "}\n"
    /* Each item adds what it finds at every PARTS-th point: an order that no device changes. */
    "kernel void add_squares(global const float *change, const ulong first, const ulong end,\n"
    "                        global float *parts) {\n"
    "    float sum = 0;\n"
    "    for (size_t at = first + get_global_id(0); at < end; at += get_global_size(0))\n"
    "        sum += change[at] * change[at];\n"
    "    parts[get_global_id(0)] = sum;\n"
    "}\n";

static const cl_float omega = 0.8f;
static int rank, ranks, lines, width;
/* Planes of this rank, and the first one of them in the grid; each array has one more on each side. */
static int planes, first;
/* How the job ends if the device fails: before the first iteration a new start would not help. */
static int after_failure = 2;

static cl_context context;
static cl_command_queue queue;
static cl_program program;
static cl_kernel require, apply, add_squares;
static cl_mem terms[TERMS], p, change, parts;

/* Ends the job where a call of the library has failed: to be started again where something was
 * lost. */
static void need(int code) {
    int lost = code == SKT_ERR_LOST || code == SKT_ERR_TIMEOUT;
    if (code != SKT_SUCCESS) {
        fprintf(stderr, "himeno_opencl: %s: %s\n", skt_error(code), skt_message());
        MPI_Abort(MPI_COMM_WORLD, lost ? RESTART : code == SKT_ERR_DEVICE ? after_failure : 2);
    }
}

/* Ends the job where a call of OpenCL has failed. */
static void check(cl_int code, const char *call) {
    if (code != CL_SUCCESS) {
        fprintf(stderr, "himeno_opencl: %s: error %d of OpenCL\n", call, (int)code);
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

static cl_kernel kernel(const char *name) {
    cl_int code;
    cl_kernel made = clCreateKernel(program, name, &code);
    check(code, name);
    return made;
}

/* Opens the device and compiles the kernels for it. */
static void start_device(void) {
    cl_device_id device = choose_device();
    cl_int code;
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
        fprintf(stderr, "himeno_opencl: %s\n", log);
    }
    check(code, "clBuildProgram");
    require = kernel("require");
    apply = kernel("apply");
    add_squares = kernel("add_squares");
}

static size_t points(int n) { return (size_t)n * (size_t)lines * (size_t)width; }

static cl_mem buffer(size_t floats) {
    cl_int code;
    cl_mem made = clCreateBuffer(context, CL_MEM_READ_WRITE, floats * sizeof(cl_float), NULL, &code);
    check(code, "clCreateBuffer");
    return made;
}

/* Sets floats of a buffer. */
static void set(cl_mem memory, size_t from, size_t floats, cl_float value) {
    check(clEnqueueFillBuffer(queue, memory, &value, sizeof value, from * sizeof value,
                              floats * sizeof value, 0, NULL, NULL),
          "clEnqueueFillBuffer");
}

static void argument(cl_kernel of, cl_uint index, size_t size, const void *value) {
    check(clSetKernelArg(of, index, size, value), "clSetKernelArg");
}

/* Coefficients of the benchmark, and p = (i / (I - 1))^2 in plane i, also on the boundary. */
static void fill(void) {
    static const cl_float values[TERMS] = {1, 1, 1, 1.0f / 6, 0, 0, 0, 1, 1, 1, 0, 1};
    for (cl_uint n = 0; n < TERMS; n++) {
        terms[n] = buffer(points(planes + 2));
        set(terms[n], 0, points(planes + 2), values[n]);
        argument(require, n, sizeof terms[n], &terms[n]);
    }
    p = buffer(points(planes + 2));
    change = buffer(points(planes + 2));
    parts = buffer(PARTS);
    set(change, 0, points(planes + 2), 0);
    for (int i = 0; i < planes + 2; i++) {
        cl_float x = (float)(first - 1 + i) / (float)(lines - 1);
        set(p, points(i), points(1), x * x);
    }
    cl_ulong begin = points(1), end = points(planes + 1);
    argument(require, TERMS, sizeof p, &p);
    argument(require, TERMS + 1, sizeof change, &change);
    argument(require, TERMS + 2, sizeof(cl_int), &lines);
    argument(require, TERMS + 3, sizeof(cl_int), &width);
    argument(apply, 0, sizeof p, &p);
    argument(apply, 1, sizeof change, &change);
    argument(apply, 2, sizeof omega, &omega);
    argument(add_squares, 0, sizeof change, &change);
    argument(add_squares, 1, sizeof begin, &begin);
    argument(add_squares, 2, sizeof end, &end);
    argument(add_squares, 3, sizeof parts, &parts);
}

/* Waits for what the queue has, and reads floats of a buffer. */
static void read_floats(cl_mem memory, size_t from, size_t floats, float *into) {
    check(clEnqueueReadBuffer(queue, memory, CL_TRUE, from * sizeof *into, floats * sizeof *into, into,
                              0, NULL, NULL),
          "clEnqueueReadBuffer");
}

/* Sends plane `own` of the pressure to one neighbour, and receives plane `other` from the other. */
static void pass(int own, int to, int other, int from, float *planes_of_two, MPI_Comm comm) {
    int plane = (int)points(1);
    float *sent = planes_of_two, *received = planes_of_two + plane;
    if (to != MPI_PROC_NULL) read_floats(p, points(own), points(1), sent);
    MPI_Sendrecv(sent, plane, MPI_FLOAT, to, 1, received, plane, MPI_FLOAT, from, 1, comm,
                 MPI_STATUS_IGNORE);
    if (from == MPI_PROC_NULL) return;
    check(clEnqueueWriteBuffer(queue, p, CL_TRUE, points(other) * sizeof *received,
                               points(1) * sizeof *received, received, 0, NULL, NULL),
          "clEnqueueWriteBuffer");
}

static void enqueue(cl_kernel what, cl_uint dimensions, const size_t *offset, const size_t *items) {
    check(clEnqueueNDRangeKernel(queue, what, dimensions, offset, items, NULL, 0, NULL, NULL),
          "clEnqueueNDRangeKernel");
}

/* Has the device begin one iteration, which `changes_of` completes. */
static void begin_iteration(float *planes_of_two, MPI_Comm comm) {
    int up = rank > 0 ? rank - 1 : MPI_PROC_NULL, down = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
    size_t inner[] = {(size_t)width - 2, (size_t)lines - 2, (size_t)planes};
    size_t begin = points(1), all = points(planes), items = PARTS;
    pass(1, up, planes + 1, down, planes_of_two, comm);
    pass(planes, down, 0, up, planes_of_two, comm);
    enqueue(require, 3, NULL, inner);
    enqueue(apply, 1, &begin, &all);
    enqueue(add_squares, 1, NULL, &items);
    check(clFlush(queue), "clFlush");
}

/* The sum of the squares of this rank's changes. */
static double changes_of_iteration(void) {
    float each[PARTS];
    double sum = 0;
    read_floats(parts, 0, PARTS, each);
    for (int n = 0; n < PARTS; n++) sum += (double)each[n];
    return sum;
}

/* The sum of the squares of this rank's pressure. */
static double squares_of_pressure(void) {
    float *values = malloc(points(planes) * sizeof *values);
    double sum = 0;
    if (values == NULL) MPI_Abort(MPI_COMM_WORLD, 2);
    read_floats(p, points(1), points(planes), values);
    for (size_t at = 0; at < points(planes); at++) sum += (double)values[at] * (double)values[at];
    free(values);
    return sum;
}

/* The sum over all ranks, in their order. */
static double sum_of(double mine, MPI_Comm comm) {
    double all = 0, *each = malloc((size_t)ranks * sizeof *each);
    MPI_Gather(&mine, 1, MPI_DOUBLE, each, 1, MPI_DOUBLE, 0, comm);
    for (int i = 0; rank == 0 && i < ranks; i++) all += each[i];
    free(each);
    return all;
}

/* Takes a checkpoint each EVERY iterations, over OVERLAP of them. `begun` is the step at which one
 * was begun that is not complete; 0: none. */
static void save(long step, long *begun) {
    if (*begun > 0 && step == *begun + OVERLAP) {
        need(skt_checkpoint_wait());
        if (rank == 0) fprintf(stderr, "checkpoint at step %ld\n", *begun);
        *begun = 0;
    } else if (*begun == 0 && step > 0 && step % EVERY == 0) {
        need(skt_checkpoint_begin());
        *begun = step;
    }
}

int main(int argc, char **argv) {
    long steps = argc > 1 ? atol(argv[1]) : 200, step = 0, begun = 0;
    MPI_Comm comm = MPI_COMM_WORLD;
    skt_mover mover;
    int64_t found = 0;
    double gosa = 0;
    int done;

    lines = argc > 2 ? atoi(argv[2]) : 32;
    width = 2 * lines;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(comm, &ranks);
    start_device();
    planes = (lines - 2 + ranks - 1) / ranks + 2; /* the most of any rank, with its neighbours' */
    char problem[64];
    snprintf(problem, sizeof problem, "application = \"himeno_opencl %d\"", lines);
    int code = skt_init(comm, points(planes) * sizeof(float) + sizeof step + sizeof gosa, problem);
    if (code == SKT_ENDED) return MPI_Finalize();
    need(code);
    need(skt_comm(&comm));
    MPI_Comm_rank(comm, &rank);
    planes = (lines - 2) / ranks + (rank < (lines - 2) % ranks);
    first = 1 + rank * ((lines - 2) / ranks) + (rank < (lines - 2) % ranks ? rank : (lines - 2) % ranks);
    fill();
    need(skt_mover_opencl(queue, &mover));
    need(skt_protect(0, &step, 1, sizeof step));
    need(skt_protect(1, &gosa, 1, sizeof gosa));
    need(skt_protect_with(2, p, points(planes + 2), sizeof(float), &mover));
    need(skt_found(&found));
    if (found > 0) need(skt_restore());
    if (found > 0 && rank == 0) fprintf(stderr, "continues from step %ld\n", step);

    float *planes_of_two = malloc(2 * points(1) * sizeof *planes_of_two);
    if (planes_of_two == NULL) MPI_Abort(MPI_COMM_WORLD, 2);
    for (after_failure = RESTART; step < steps; step++) {
        save(step, &begun);
        begin_iteration(planes_of_two, comm);
        if (begun > 0) need(skt_checkpoint_test(&done)); /* while the device computes */
        gosa = changes_of_iteration();
    }
    if (begun > 0) need(skt_checkpoint_wait());

    double squares = sum_of(squares_of_pressure(), comm), changes = sum_of(gosa, comm);
    if (rank == 0) printf("sum of squares %.17g, gosa %.9g\n", squares, changes);
    fflush(stdout);
    need(skt_finalize(1));
    free(planes_of_two);
    return MPI_Finalize();
}
