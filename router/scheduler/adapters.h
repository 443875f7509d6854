/* adapters.h - numbers for adapters, and whether one more fits beside those that run.
 *
 * The shards bring an adapter to their devices when a request needs it and keep it as long as one
 * does (S-LoRA, arXiv 2311.03285); what then rests there makes way for others. So all that has to
 * be known here is who runs: the pages of those, together, never exceed the pool. Pure; the
 * scheduler thread is the only caller. */
#ifndef ROUTER_SCHEDULER_ADAPTERS_H
#define ROUTER_SCHEDULER_ADAPTERS_H
#include <stdbool.h>
#include <stdint.h>

struct served_adapter {
    char *name;
    uint32_t pages;
};
struct served_adapters { /* as the shards say */
    struct served_adapter *v;
    uint32_t n;
    uint32_t pages; /* that those in use share */
};
/* 1 + index, or 0. */
uint32_t served_adapters_find(const struct served_adapters *s, const char *name);
void served_adapters_free(struct served_adapters *s);

enum { ADAPTERS_MAX_UNLISTED = 256, ADAPTER_UNNUMBERED = UINT32_MAX };

struct adapter_books {
    const struct served_adapters *served;  /* outlives the books */
    char *unlisted[ADAPTERS_MAX_UNLISTED]; /* names that only a peer knows which lists none */
    uint32_t *running;                     /* [served->n + 1] requests that use it */
    uint32_t pages;                        /* of those with any */
};
bool adapters_init(struct adapter_books *b, const struct served_adapters *s); /* false: no memory */
void adapters_free(struct adapter_books *b);
/* 0: the model as it is (`name` NULL or ""); a number of its own for each name, which tells what
 * they leave in the KV cache apart. ADAPTER_UNNUMBERED: too many that are not listed. */
uint32_t adapters_number(struct adapter_books *b, const char *name);
/* May a request with it run beside those that do? Always true for what is not listed. */
bool adapters_fit(const struct adapter_books *b, uint32_t number);
void adapters_enter(struct adapter_books *b, uint32_t number);
void adapters_leave(struct adapter_books *b, uint32_t number);
#endif
