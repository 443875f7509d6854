/* adapters.h - numbers for adapters, and whether one more fits beside those that run.
 *
 * The shards bring an adapter to their devices when a request needs it and keep it as long as one
 * does (S-LoRA, arXiv 2311.03285). Adapters that no request uses are evicted. So the router counts
 * the pages of those in use: together they never exceed the pool. */
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

/* The scheduler thread's own view. */
struct adapter_accounts {
    struct served_adapters *list;
    struct adapter_use *use;               /* [list->n] */
    char *unlisted[ADAPTERS_MAX_UNLISTED]; /* names that only a peer knows which lists none */
    uint32_t pool;                         /* pages that adapters in use share */
    uint32_t pages;                        /* of those with any that runs */
    uint32_t next_number;
};
/* Holds `s`. False: no memory. */
bool adapters_init(struct adapter_accounts *b, struct served_adapters *s, uint32_t pool);
void adapters_free(struct adapter_accounts *b);
/* Another list; the counts of those that are in both stay. False: no memory, nothing changed. */
bool adapters_replace(struct adapter_accounts *b, struct served_adapters *s);
/* 0: the model as it is (`name` NULL or ""); the number of the listed adapter; for names that are
 * not listed another one each. ADAPTER_UNNUMBERED: too many of those. */
uint32_t adapters_number(struct adapter_accounts *b, const char *name);
uint32_t adapters_known(const struct adapter_accounts *b, uint32_t number);
/* May a request with it run beside those that do? Always true for what is not listed. */
bool adapters_fit(const struct adapter_accounts *b, uint32_t number);
/* The next four do nothing for what is not listed (any more). */
void adapters_come(struct adapter_accounts *b, uint32_t number); /* a request that names it */
void adapters_go(struct adapter_accounts *b, uint32_t number);
void adapters_enter(struct adapter_accounts *b, uint32_t number); /* it runs */
void adapters_leave(struct adapter_accounts *b, uint32_t number);
#endif
