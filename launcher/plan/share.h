/* share.h - divides cores and devices of this machine among replicas. Pure. */
#ifndef LAUNCHER_SHARE_H
#define LAUNCHER_SHARE_H
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The share of one replica. */
struct share {
    cpu_set_t cores;    /* empty: all */
    char devices[1024]; /* for CUDA_VISIBLE_DEVICES; "": all */
};

/* Writes the k-th of n shares of `all` to `out`: whole NUMA nodes, if those with cores of `all`
 * divide evenly. Otherwise equal numbers of consecutive cores; the first shares get one more.
 * Returns the number of cores; 0: fewer cores than shares, and `out` is empty. */
uint32_t share_cores(const cpu_set_t *all, const cpu_set_t *nodes, uint32_t n_nodes, uint32_t n,
                     uint32_t k, cpu_set_t *out);

/* Parses a core list of the kernel, "0-3,8,10-11". False: invalid. */
bool share_parse_cores(const char *list, cpu_set_t *out);

/* Writes the k-th share of `each` items of the list "a,b,c" to `out`, of `size` bytes. False: not
 * enough items or space. */
bool share_devices(const char *list, uint32_t each, uint32_t k, char *out, size_t size);
#endif
