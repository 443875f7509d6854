/* drain.h - the rate at which generations end, for the Retry-After header. Pure. */
#ifndef ROUTER_GENERATE_DRAIN_H
#define ROUTER_GENERATE_DRAIN_H
#include <stdint.h>

enum { DRAIN_KEPT = 32, DRAIN_MIN_S = 1, DRAIN_MAX_S = 120, DRAIN_UNKNOWN_S = 5 };
struct drain {
    int64_t ended_ns[DRAIN_KEPT]; /* ring of the end times of the last generations */
    uint32_t n;                   /* generations in all */
};

/* Records that `generations` ended now. */
void drain_ended(struct drain *d, int64_t now_ns, uint32_t generations);
/* Seconds until `ahead` more generations have ended, at the rate of the last minute. */
uint32_t drain_wait(const struct drain *d, int64_t now_ns, uint32_t ahead);
#endif
