#include "router/generate/drain.h"

#define MINUTE_NS (60ll * 1000000000)

void drain_ended(struct drain *d, int64_t now_ns, uint32_t generations)
{
    for (uint32_t i = 0; i < generations && i < DRAIN_KEPT; i++)
        d->ended_ns[d->n++ % DRAIN_KEPT] = now_ns;
}

uint32_t drain_wait(const struct drain *d, int64_t now_ns, uint32_t ahead)
{
    uint32_t kept = d->n < DRAIN_KEPT ? d->n : DRAIN_KEPT, ended = 0;
    int64_t oldest = now_ns;
    for (uint32_t i = 0; i < kept; i++) {
        int64_t at = d->ended_ns[i];
        if (now_ns - at > MINUTE_NS)
            continue;
        ended++;
        oldest = at < oldest ? at : oldest;
    }
    if (!ended)
        return DRAIN_UNKNOWN_S;
    double seconds = (double)(now_ns - oldest) * 1e-9 * ahead / ended;
    if (seconds <= DRAIN_MIN_S)
        return DRAIN_MIN_S;
    return seconds < DRAIN_MAX_S ? (uint32_t)seconds + 1 : DRAIN_MAX_S;
}
