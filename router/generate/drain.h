/* drain.h - how fast answers end, and so when it is worth asking again: Retry-After. Pure. */
#ifndef ROUTER_GENERATE_DRAIN_H
#define ROUTER_GENERATE_DRAIN_H
#include <stdint.h>

enum { DRAIN_KEPT = 32, DRAIN_MIN_S = 1, DRAIN_MAX_S = 120, DRAIN_UNKNOWN_S = 5 };
struct drain {
    int64_t ended_ns[DRAIN_KEPT]; /* a ring: when the last generations ended */
    uint32_t n;                   /* in all */
};

void drain_ended(struct drain *d, int64_t now_ns, uint32_t generations);
/* Seconds until `ahead` more generations have ended, at the pace of the last minute. */
uint32_t drain_wait(const struct drain *d, int64_t now_ns, uint32_t ahead);
#endif
