/* comm_group.h - some ranks of a communicator that become one of their own. Private to comm/. */
#ifndef MODEL_SERVER_COMM_COMM_GROUP_H
#define MODEL_SERVER_COMM_COMM_GROUP_H
#include "model-server/comm/comm.h"
#include <stdint.h>

struct comm_group {
    int n, me;                  /* ranks of it, and this one's number among them */
    int ranks[COMM_MOST_RANKS]; /* [n] their numbers in the communicator that is split, ascending */
    int nodes;                  /* machines that they are on */
    uint64_t name;              /* the same for all of them, and for no other group */
    struct comm *whole;         /* the communicator that was opened */
};

/* The ranks of a group that are all on this machine, over shared memory of their own. `numbers`:
 * [n] what they are called in messages. */
struct comm *comm_shm_group(const struct comm_group *g, const int *numbers, int timeout_ms,
                            struct err *e);
#endif
