#include "common/rpc/target.h"
#include "common/clock.h"
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_NS = 4000000 };

const char *rpc_target(const char *target, char *buf, size_t cap)
{
    if (strncmp(target, "tcp://", 6) == 0)
        return target + 6;
    if (strncmp(target, "unix://", 7) == 0)
        target += 7;
    if (target[0] != '/' && target[0] != '.')
        return target;
    snprintf(buf, cap, "unix:%s", target);
    return buf;
}

void rpc_target_await(const char *target, int64_t timeout_ms)
{
    char buf[4096];
    const char *path = rpc_target(target, buf, sizeof(buf));
    const int64_t end_ms = clock_ms() + timeout_ms;
    if (strncmp(path, "unix:", 5) != 0)
        return;
    while (access(path + 5, F_OK) != 0 && clock_ms() < end_ms)
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
}
