#include "launcher/process/sweep.h"
#include "common/process/shard_group.h"
#include "launcher/plan/machine.h"
#include <unistd.h>

void sweep_shards(const struct plan *p)
{
    char path[SHARD_GROUP_PATH];
    for (uint32_t r = p->first; r < p->first + p->n; r++) {
        const char *socket = plan_socket(p, r);
        if (socket)
            machine_socket_remove(socket);
    }
    shard_group_path(path, p->group);
    unlink(path); /* exists only after a crash during a start */
}
