/* What heat.c of this folder is saved by: one of skt.c, fti.c and veloc.c is linked. */
#ifndef SAVES_H
#define SAVES_H

#include <stddef.h>

#include <mpi.h>

/* The exit code where the library refuses to continue. */
enum { REFUSED = 3 };

/* Opens the library, after MPI_Init. Returns the communicator to compute on. */
MPI_Comm saves_open(size_t doubles);

/* Gives the plate, of zeros or with the contents of a checkpoint; registers it and the step. */
double *saves_plate(size_t doubles, long *step);

/* Fills the plate and the step from the checkpoint. Returns whether there is one. */
int saves_restore(void);

/* Saves plate and step, on all ranks. */
void saves_checkpoint(long step);

/* Called after each step, and at the last one. */
void saves_step(int is_last);

/* Ends the run: nothing of it is needed any more. */
void saves_close(void);

/* Ends the job with `code`, on all ranks. */
void saves_fail(const char *what, int code);

#endif
