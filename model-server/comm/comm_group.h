/* comm_group.h - a subset of the ranks of a communicator. Private to comm/. */
#ifndef MODEL_SERVER_COMM_COMM_GROUP_H
#define MODEL_SERVER_COMM_COMM_GROUP_H
#include "model-server/comm/comm.h"
#include <stdint.h>

struct comm_group {
    int n, me;                  /* its size, and this rank's number in it */
    int ranks[COMM_MOST_RANKS]; /* [n] numbers in the split communicator, ascending */
    int nodes;                  /* number of machines */
    uint64_t name;              /* unique; equal on all ranks of the group */
    struct comm *whole;         /* the communicator of all ranks */
};

/* Opens a shared-memory communicator for a group whose ranks are all on this machine. `numbers`:
 * [n] rank numbers for error messages. */
struct comm *comm_shm_group(const struct comm_group *g, const int *numbers, int timeout_ms,
                            struct err *e);
#endif
