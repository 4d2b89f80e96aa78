/* Saved by this library. HEAT_ALLOC=1: the plate is memory of skt_alloc. HEAT_OVERLAP=N: a checkpoint
 * is completed N steps after it was begun, with a test in each. */
#include <stdint.h>
#include <stdlib.h>

#include <skt.h>

#include "saves.h"

static double *plate;
static int is_ours, overlap, left;

static void need(int code) {
    if (code != SKT_SUCCESS) saves_fail(skt_message(), REFUSED);
}

MPI_Comm saves_open(size_t doubles) {
    MPI_Comm comm;
    is_ours = getenv("HEAT_ALLOC") != NULL;
    if (getenv("HEAT_OVERLAP") != NULL) overlap = atoi(getenv("HEAT_OVERLAP"));
    need(skt_init(MPI_COMM_WORLD, doubles * sizeof(double) + sizeof(long), NULL));
    need(skt_comm(&comm));
    return comm;
}

double *saves_plate(size_t doubles, long *step) {
    need(skt_protect(0, step, 1, sizeof *step));
    if (is_ours) {
        void *memory;
        need(skt_alloc(1, doubles, sizeof(double), &memory));
        plate = memory;
    } else {
        plate = calloc(doubles, sizeof *plate);
        need(skt_protect(1, plate, doubles, sizeof *plate));
    }
    return plate;
}

int saves_restore(void) {
    int64_t found;
    need(skt_found(&found));
    if (found > 0) need(skt_restore());
    return found > 0;
}

void saves_checkpoint(long step) {
    (void)step;
    need(overlap > 0 ? skt_checkpoint_begin() : skt_checkpoint());
    left = overlap;
}

void saves_step(int is_last) {
    int done;
    if (left == 0) return;
    left--;
    need(left == 0 || is_last ? skt_checkpoint_wait() : skt_checkpoint_test(&done));
    if (is_last) left = 0;
}

void saves_close(void) {
    need(skt_finalize(1));
    if (!is_ours) free(plate);
}
