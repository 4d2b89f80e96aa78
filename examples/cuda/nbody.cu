/* Gravity between all pairs of bodies on NVIDIA GPUs that survives the loss of ranks. Positions and
 * velocities are in device memory, which a mover of the library copies at each checkpoint, in order
 * with the kernels of its stream; the number of the step is in host memory.
 *
 *     nvcc -ccbin mpicxx -std=c++17 -O2 nbody.cu -o nbody \
 *         $(pkg-config --cflags --libs skt-checkpoint)
 *     mpirun -np 4 nbody 400     kill -9 a rank: the same command continues
 *
 * The result has the same bits as without the kill. Without a driver or a device the program ends
 * with code 2 before a run is begun. */
#include <cstdio>
#include <cstdlib>

#include <cuda_runtime.h>
#include <mpi.h>
#include <skt.h>

/* RESTART: the exit code of a job that is to be started again. BODIES are those of a rank. */
enum { BODIES = 256, BLOCK = 64, EVERY = 20, RESTART = 75, REFUSED = 2 };
static const size_t bytes = BODIES * sizeof(double3);

static int rank, ranks;
static cudaStream_t stream;
/* In device memory: positions, velocities, accelerations, and the positions of the others. */
static double3 *x, *v, *a, *theirs;
/* In pinned host memory: positions that pass around the ranks. */
static double3 *outgoing, *incoming;

/* Ends the job where a call has failed: to be started again where something was lost. */
static void need(int code) {
    int lost = code == SKT_ERR_LOST || code == SKT_ERR_TIMEOUT;
    if (code != SKT_SUCCESS) {
        fprintf(stderr, "nbody: %s: %s\n", skt_error(code), skt_message());
        MPI_Abort(MPI_COMM_WORLD, lost ? RESTART : REFUSED);
    }
}

/* Ends the job where a call of CUDA has failed. */
static void need_cuda(cudaError_t error) {
    if (error != cudaSuccess) {
        fprintf(stderr, "nbody: rank %d: CUDA error %d: %s\n", rank, error,
                cudaGetErrorString(error));
        MPI_Abort(MPI_COMM_WORLD, REFUSED);
    }
}

/* Takes one of the node's devices. Returns whether each rank has one; says why a rank has not. */
static bool has_device(void) {
    MPI_Comm node;
    int place, devices = 0;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &place);
    MPI_Comm_free(&node);
    cudaError_t error = cudaGetDeviceCount(&devices);
    if (error == cudaSuccess) error = cudaSetDevice(place % devices);
    if (error != cudaSuccess) {
        fprintf(stderr, "nbody: rank %d has no device: CUDA error %d: %s\n", rank, error,
                cudaGetErrorString(error));
    }
    int mine = error == cudaSuccess, all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return all;
}

static void allocate(void) {
    double3 **on_device[] = {&x, &v, &a, &theirs}, **pinned[] = {&outgoing, &incoming};
    need_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (double3 **memory : on_device) need_cuda(cudaMalloc((void **)memory, bytes));
    for (double3 **memory : pinned) need_cuda(cudaMallocHost((void **)memory, bytes));
}

static void release(void) {
    double3 *on_device[] = {x, v, a, theirs}, *pinned[] = {outgoing, incoming};
    for (double3 *memory : on_device) need_cuda(cudaFree(memory));
    for (double3 *memory : pinned) need_cuda(cudaFreeHost(memory));
    need_cuda(cudaStreamDestroy(stream));
}

/* Bodies on a spiral, at rest; `first` is the number of this rank's first one of `all`. */
__global__ void place(double3 *x, double3 *v, int first, int all) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double t = (double)(first + i + 1) / all;
    x[i] = make_double3(t * cos(40 * t), t * sin(40 * t), 0.1 * t * cos(7 * t));
    v[i] = make_double3(0, 0, 0);
}

/* Adds the attraction by the bodies of one rank, one after the other: always the same bits. */
__global__ void attract(double3 *a, const double3 *x, const double3 *theirs, int all) {
    const double softening = 1e-2;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double3 sum = a[i], here = x[i];
    for (int j = 0; j < BODIES; j++) {
        double dx = theirs[j].x - here.x, dy = theirs[j].y - here.y, dz = theirs[j].z - here.z;
        double square = dx * dx + dy * dy + dz * dz + softening * softening;
        double factor = 1 / (square * sqrt(square) * all);
        sum.x += factor * dx;
        sum.y += factor * dy;
        sum.z += factor * dz;
    }
    a[i] = sum;
}

__global__ void advance(double3 *x, double3 *v, const double3 *a) {
    const double dt = 1e-3;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    v[i] = make_double3(v[i].x + dt * a[i].x, v[i].y + dt * a[i].y, v[i].z + dt * a[i].z);
    x[i] = make_double3(x[i].x + dt * v[i].x, x[i].y + dt * v[i].y, x[i].z + dt * v[i].z);
}

/* One step. All positions pass around a ring of the ranks, in an order that depends on them alone.
 * The last kernel is only enqueued: a checkpoint has to wait for it. */
static void iterate(MPI_Comm comm) {
    need_cuda(cudaMemsetAsync(a, 0, bytes, stream));
    need_cuda(cudaMemcpyAsync(theirs, x, bytes, cudaMemcpyDeviceToDevice, stream));
    need_cuda(cudaMemcpyAsync(outgoing, x, bytes, cudaMemcpyDeviceToHost, stream));
    for (int hop = 0; hop < ranks; hop++) {
        attract<<<BODIES / BLOCK, BLOCK, 0, stream>>>(a, x, theirs, ranks * BODIES);
        need_cuda(cudaGetLastError());
        if (hop == ranks - 1) break;
        need_cuda(cudaStreamSynchronize(stream));
        MPI_Sendrecv(outgoing, 3 * BODIES, MPI_DOUBLE, (rank + 1) % ranks, 1, incoming, 3 * BODIES,
                     MPI_DOUBLE, (rank + ranks - 1) % ranks, 1, comm, MPI_STATUS_IGNORE);
        double3 *received = incoming;
        incoming = outgoing;
        outgoing = received;
        need_cuda(cudaMemcpyAsync(theirs, outgoing, bytes, cudaMemcpyHostToDevice, stream));
    }
    advance<<<BODIES / BLOCK, BLOCK, 0, stream>>>(x, v, a);
    need_cuda(cudaGetLastError());
}

/* The sum of the squares of all positions and velocities, in the order of bodies and ranks. */
static double sum_of_squares(MPI_Comm comm) {
    double mine = 0, all = 0, *each = (double *)malloc(ranks * sizeof *each);
    if (each == NULL) MPI_Abort(MPI_COMM_WORLD, REFUSED);
    const double3 *arrays[] = {x, v};
    for (const double3 *array : arrays) {
        need_cuda(cudaMemcpyAsync(outgoing, array, bytes, cudaMemcpyDeviceToHost, stream));
        need_cuda(cudaStreamSynchronize(stream));
        for (int i = 0; i < BODIES; i++) {
            double3 of = outgoing[i];
            mine += of.x * of.x + of.y * of.y + of.z * of.z;
        }
    }
    MPI_Gather(&mine, 1, MPI_DOUBLE, each, 1, MPI_DOUBLE, 0, comm);
    for (int i = 0; rank == 0 && i < ranks; i++) all += each[i];
    free(each);
    return all;
}

int main(int argc, char **argv) {
    long steps = argc > 1 ? atol(argv[1]) : 400, step = 0;
    MPI_Comm comm = MPI_COMM_WORLD;
    skt_mover mover;
    int64_t found = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(comm, &rank);
    if (!has_device()) {
        MPI_Finalize();
        return REFUSED;
    }
    int code = skt_init(comm, 2 * bytes + sizeof step, "application = \"nbody 256 on devices\"");
    if (code == SKT_ENDED) return MPI_Finalize();
    need(code);
    need(skt_comm(&comm));
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    allocate();
    need(skt_mover_cuda(stream, &mover));
    need(skt_protect(0, &step, 1, sizeof step));
    need(skt_protect_with(1, x, BODIES, sizeof *x, &mover));
    need(skt_protect_with(2, v, BODIES, sizeof *v, &mover));
    need(skt_found(&found));
    if (found > 0) {
        need(skt_restore());
        if (rank == 0) fprintf(stderr, "continues from step %ld\n", step);
    } else {
        place<<<BODIES / BLOCK, BLOCK, 0, stream>>>(x, v, rank * BODIES, ranks * BODIES);
        need_cuda(cudaGetLastError());
    }

    for (; step < steps; step++) {
        if (step > 0 && step % EVERY == 0) {
            need(skt_checkpoint());
            if (rank == 0) fprintf(stderr, "checkpoint at step %ld\n", step);
        }
        iterate(comm);
    }

    double squares = sum_of_squares(comm);
    if (rank == 0) printf("sum of squares %.17g\n", squares);
    fflush(stdout);
    need(skt_finalize(1));
    release();
    return MPI_Finalize();
}
