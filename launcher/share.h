/* share.h - what of this machine each replica gets: cores and devices. Pure. */
#ifndef LAUNCHER_SHARE_H
#define LAUNCHER_SHARE_H
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A part of this machine, for one replica of several. */
struct share {
    cpu_set_t cores;    /* empty: all */
    char devices[1024]; /* for CUDA_VISIBLE_DEVICES; "": all */
};

/* The k-th of n shares of `all`, into `out`: whole NUMA nodes, where those that have cores of `all`
 * can be dealt out evenly; else as many cores each, in the order of their numbers, the first shares
 * one more. Returns how many; 0: there are fewer cores than shares, and `out` is empty. */
uint32_t share_cores(const cpu_set_t *all, const cpu_set_t *nodes, uint32_t n_nodes, uint32_t n,
                     uint32_t k, cpu_set_t *out);

/* A list of the kernel's, "0-3,8,10-11", into `out`. False: it is none. */
bool share_parse_cores(const char *list, cpu_set_t *out);

/* The k-th share of `each` items of the list "a,b,c"; `out` of `size` bytes. False: there are not
 * as many, or no room. */
bool share_devices(const char *list, uint32_t each, uint32_t k, char *out, size_t size);
#endif
