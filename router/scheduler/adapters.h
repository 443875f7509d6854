/* adapters.h - adapter numbers, and whether one more adapter fits beside the running ones.
 *
 * The shards load an adapter onto their devices when a request needs it, and keep it while one uses
 * it (S-LoRA, arXiv 2311.03285). Adapters that no request uses are evicted. So the router counts
 * the pages of adapters in use; their sum never exceeds the pool. */
#ifndef ROUTER_SCHEDULER_ADAPTERS_H
#define ROUTER_SCHEDULER_ADAPTERS_H
#include "router/shards/served_adapters.h"
#include <stdbool.h>
#include <stdint.h>

enum {
    ADAPTERS_MAX_UNLISTED = 256,
    ADAPTER_FIRST_UNLISTED = 1 << 30,
    ADAPTER_UNNUMBERED = UINT32_MAX
};

/* Owned by the scheduler thread. */
struct adapter_accounts {
    struct served_adapters *list;
    struct adapter_use *use;               /* [list->n] use counts */
    char *unlisted[ADAPTERS_MAX_UNLISTED]; /* names of a peer that lists no adapters */
    uint32_t pool;                         /* pages shared by the adapters in use */
    uint32_t pages;                        /* pages of adapters that a running request uses */
    uint32_t next_number;
};
/* Takes a reference to `s`. `pool`: pages. False: out of memory. */
bool adapters_init(struct adapter_accounts *b, struct served_adapters *s, uint32_t pool);
void adapters_free(struct adapter_accounts *b);
/* Replaces the list; use counts of adapters in both lists stay. False: out of memory, nothing
 * changed. */
bool adapters_replace(struct adapter_accounts *b, struct served_adapters *s);
/* 0: the base model (`name` NULL or ""). Otherwise the number of the listed adapter, or a separate
 * number for each unlisted name. ADAPTER_UNNUMBERED: too many of these. */
uint32_t adapters_number(struct adapter_accounts *b, const char *name);
/* Known requests that name adapter `number`. */
uint32_t adapters_known(const struct adapter_accounts *b, uint32_t number);
/* May a request with this adapter run beside the running ones? Always true for unlisted
 * adapters. */
bool adapters_fit(const struct adapter_accounts *b, uint32_t number);
/* The next four do nothing for adapters that are not (or no longer) listed. */
void adapters_retain(struct adapter_accounts *b, uint32_t number); /* a known request names it */
void adapters_release(struct adapter_accounts *b, uint32_t number);
void adapters_activate(struct adapter_accounts *b,
                       uint32_t number); /* a request that uses it runs */
void adapters_deactivate(struct adapter_accounts *b, uint32_t number);
#endif
