/* Saved by FTI: FTI_CONFIG is its configuration, FTI_LEVEL the level of each checkpoint. */
#include <stdlib.h>

#include <fti.h>

#include "saves.h"

static double *plate;

MPI_Comm saves_open(size_t doubles) {
    (void)doubles;
    int code = FTI_Init(getenv("FTI_CONFIG"), MPI_COMM_WORLD);
    if (code == FTI_NREC) saves_fail("FTI_Init: FTI_NREC", REFUSED);
    if (code != FTI_SCES) saves_fail("FTI_Init", REFUSED);
    return FTI_COMM_WORLD;
}

double *saves_plate(size_t doubles, long *step) {
    plate = calloc(doubles, sizeof *plate);
    FTI_Protect(0, step, 1, FTI_LONG);
    FTI_Protect(1, plate, (int32_t)doubles, FTI_DBLE);
    return plate;
}

int saves_restore(void) {
    if (FTI_Status() == 0) return 0;
    if (FTI_Recover() != FTI_SCES) saves_fail("FTI_Recover", REFUSED);
    return 1;
}

void saves_checkpoint(long step) {
    if (FTI_Checkpoint((int)step, atoi(getenv("FTI_LEVEL"))) != FTI_DONE) {
        saves_fail("FTI_Checkpoint", REFUSED);
    }
}

void saves_step(int is_last) { (void)is_last; }

void saves_close(void) {
    FTI_Finalize();
    free(plate);
}
