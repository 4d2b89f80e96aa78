/* Checkpoints in memory that survive the loss of ranks, for programs over MPI.
 *
 * Each call returns SKT_SUCCESS or a code below; skt_message() says what has happened. No call
 * prints or ends the process, unless MPI fails while it uses the library's memory. Collective calls
 * are made by all ranks of the communicator, in one order; what is wrong on one rank is told to all
 * of them. Calls are made by one thread at a time.
 *
 * docs/c-interface.md has a tutorial and says what each way to protect memory costs. */
#ifndef SKT_H
#define SKT_H

#include <stddef.h>
#include <stdint.h>

#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SKT_VERSION "0.1.0"

/* The most regions of a rank at a time. */
#define SKT_REGIONS 256

enum {
    SKT_SUCCESS = 0,
    /* skt_init: an earlier start has ended this run; nothing of it is left to compute. */
    SKT_ENDED = 1,
    /* An argument is not legal. */
    SKT_ERR_ARGUMENT = -1,
    /* This call is out of order, or the ranks have made different calls. */
    SKT_ERR_ORDER = -2,
    /* An option is not legal. */
    SKT_ERR_OPTIONS = -3,
    /* MPI is not initialized, is finalized, or refuses a call. */
    SKT_ERR_MPI = -4,
    /* Another thread is in a call, or MPI does not allow calls of this one. */
    SKT_ERR_THREAD = -5,
    /* The regions are larger than what skt_init was told. */
    SKT_ERR_SPACE = -6,
    /* A region is not as the checkpoint has it. */
    SKT_ERR_REGION = -7,
    /* The run cannot begin, or continue from what was found, as asked; nothing was changed. */
    SKT_ERR_REFUSED = -8,
    /* The system refuses memory or a file. */
    SKT_ERR_SYSTEM = -9,
    /* A rank has not made this call in time (option timeout_seconds). */
    SKT_ERR_TIMEOUT = -10,
    /* A rank is lost: end the job; the same command continues. */
    SKT_ERR_LOST = -11,
    /* A bug of this library. */
    SKT_ERR_INTERNAL = -12,
    /* skt_image: a level of images has failed; the run continues without it. */
    SKT_ERR_LEVEL = -13,
    /* Memory of a device cannot be copied, or its driver is missing. */
    SKT_ERR_DEVICE = -14
};
/* After SKT_ERR_SYSTEM, SKT_ERR_TIMEOUT, SKT_ERR_LOST or SKT_ERR_INTERNAL of a collective call, and
 * SKT_ERR_REGION of skt_checkpoint_wait, the process cannot use the run any more: all later calls
 * return the same. End the job, and start the same command again. After the other codes nothing
 * has changed. */

/* What skt_due finds. */
enum {
    /* No checkpoint is due. */
    SKT_NOT_DUE = 0,
    /* A checkpoint is due. */
    SKT_DUE_NOW = 1,
    /* A checkpoint is due, and then the end of the program, with skt_finalize(0): there is no time
     * for another step and another checkpoint. */
    SKT_DUE_LAST = 2
};

/* Begins a run, or continues what earlier starts of it have left. Collective over comm, which has
 * one process for each rank.
 *
 * bytes: the size of all regions of this rank together; the largest of all ranks counts, and is the
 * same in each start. options: NULL, or a TOML text such as "run_id = \"heat\"\nparities = 2", which
 * docs/c-interface.md explains; variables of the environment (SKT_RUN_ID, SKT_PARITIES) go over it. */
int skt_init(MPI_Comm comm, size_t bytes, const char *options);

/* Gives the communicator to use from then on: its ranks are those of the data, which need not be
 * those of the launcher. It lives until skt_finalize. */
int skt_comm(MPI_Comm *comm);

/* Gives the number of the checkpoint that this start continues from; 0: the run begins. */
int skt_found(int64_t *checkpoint);

/* Gives the items of a region in that checkpoint, and the bytes of an item; 0 and 0: it has none. */
int skt_saved(int id, size_t *count, size_t *size);

/* Gives memory that outlives the process, for `count` items of `size` bytes: what the checkpoint has
 * of region id, or zeros. It lives until skt_finalize and is never moved. */
int skt_alloc(int id, size_t count, size_t size, void **memory);

/* Protects memory of the program: each checkpoint copies it. Called again for an id, it replaces the
 * address and the size: a region may grow between two checkpoints, within the bytes of skt_init.
 * Refused, it leaves the region without protection, and the next collective call fails on all ranks. */
int skt_protect(int id, void *memory, size_t count, size_t size);

/* Callbacks that copy `bytes` bytes between the host and the memory of a region, from byte `offset`
 * of it on. They return 0 when the bytes have arrived, else a code that `error` explains; it may be
 * NULL. A copy of a large region is several calls. They are made by the thread that has called the
 * library, within skt_checkpoint, skt_checkpoint_begin and skt_restore alone; they make no call of
 * the library, and throw no exception. */
typedef struct skt_mover {
    int (*to_host)(void *context, void *host, const void *memory, size_t offset, size_t bytes);
    int (*from_host)(void *context, void *memory, const void *host, size_t offset, size_t bytes);
    const char *(*error)(void *context, int code);
    void *context;
} skt_mover;

/* Protects memory that only callbacks can copy, as that of a device; the library passes its address
 * to them and does not access it. All that writes to it must be complete before a checkpoint, or be
 * waited for by the callback. If a copy fails on any rank, the call returns SKT_ERR_DEVICE on all of
 * them; the checkpoint before stays valid, and the run can continue. Otherwise as skt_protect. The
 * mover is copied. */
int skt_protect_with(int id, void *memory, size_t count, size_t size, const skt_mover *mover);

/* Give a mover for memory of CUDA, by device pointers; of HIP, likewise; of OpenCL, where `memory` is
 * the cl_mem of a buffer. The copies are made in the stream (NULL: the default one of the current
 * context or device) or the command queue, after all that was enqueued there before; what other
 * streams do to a region must be complete. The stream lives until skt_finalize, which ends the
 * mover; the same mover may serve several regions. The driver's library is loaded in this call:
 * SKT_ERR_DEVICE says what is missing. Need neither MPI nor a run. */
int skt_mover_cuda(void *stream, skt_mover *mover);
int skt_mover_hip(void *stream, skt_mover *mover);
int skt_mover_opencl(void *queue, skt_mover *mover);

/* Leaves a region of skt_protect or skt_protect_with out of later checkpoints. */
int skt_unprotect(int id);

/* Copies these regions back from the checkpoint that skt_found has told of. Collective.
 * Memory of skt_alloc has its contents already. */
int skt_restore(void);

/* Saves all regions. Collective, at a point where no message of the program is under way. A death
 * at any time leaves this checkpoint or the one before. */
int skt_checkpoint(void);

/* Begins what skt_checkpoint does. Collective. Memory of skt_protect is copied and may be written to
 * at once. Memory of skt_alloc may be read, and must not be written to before skt_checkpoint_wait
 * has returned; it looks whether it was. The checkpoint has what all regions have at this call. */
int skt_checkpoint_begin(void);

/* Does a piece of the checkpoint that has begun, without waiting for other ranks; of this rank
 * alone. *done != 0: nothing is left that this rank could do before skt_checkpoint_wait. That may
 * need the other ranks to test or wait, too. */
int skt_checkpoint_test(int *done);

/* Completes the checkpoint that has begun. Collective. Until it returns, the checkpoint before is
 * the one that a start continues from. */
int skt_checkpoint_wait(void);

/* Says whether it is time for a checkpoint, the same on all ranks: at once in each start, then at
 * the interval that loses least by the time a checkpoint takes and the option mtbf_seconds; and
 * once more before the time of the job ends (option time_limit). SKT_NOT_DUE while a checkpoint is
 * under way. Collective. */
int skt_due(int *due);

/* Gives the seconds up to the end of the job's time by this node's clock; infinite if there is none
 * (option time_limit). */
int skt_time_left(double *seconds);

/* Gives the newest checkpoint of which all ranks are known to have an image on a level, by its
 * number in the option levels, from 0 on; 0: none. SKT_ERR_LEVEL if no rank writes to it any more.
 * Ranks learn of images with the next checkpoint, or in skt_images_wait. */
int skt_image(int level, int64_t *checkpoint);

/* Waits for the images that are being written. Collective. */
int skt_images_wait(void);

/* Ends the run. Collective, before MPI_Finalize. done != 0: the result is reported, and nothing of
 * the run stays. done == 0: the next start continues from the last checkpoint; waits for the images
 * that are being written. */
int skt_finalize(int done);

/* The meaning of a code. */
const char *skt_error(int code);

/* What has happened in the last failed call of this thread, that skt_init has begun a run without
 * redundancy (on one rank), or which images skt_finalize(1) could not remove; valid until its next
 * call. */
const char *skt_message(void);

/* The version of the library that is loaded. */
const char *skt_version(void);

/* For skt.f90: communicators as Fortran has them. */
int skt_init_f(MPI_Fint comm, size_t bytes, const char *options);
int skt_comm_f(MPI_Fint *comm);

#ifdef __cplusplus
}
#endif

#endif
