/* What programs of cases share: each rank prints a line `CALL CODE TEXT` for each call that the test
 * looks at, after its rank. */
#include <stdio.h>

#include <mpi.h>
#include <skt.h>

static int rank, size;

/* Prints what a call returns. */
static int say(const char *call, int code) {
    char text[2000];
    snprintf(text, sizeof text, "%d %s %d %s\n", rank, call, code, skt_message());
    fputs(text, stdout);
    fflush(stdout);
    return code;
}
#define SAY(call) say(#call, call)

static void must(int code) {
    if (code != SKT_SUCCESS) {
        printf("%d unexpected %d %s: %s\n", rank, code, skt_error(code), skt_message());
        fflush(stdout);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}
