#include "common/rpc/target.h"
#include <stdio.h>
#include <string.h>

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
