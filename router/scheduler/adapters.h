/* adapters.h - which adapters are served, numbers for them, and whether one more fits beside those
 * that run.
 *
 * The shards bring an adapter to their devices when a request needs it and keep it as long as one
 * does (S-LoRA, arXiv 2311.03285). Adapters that no request uses are evicted. So the router counts
 * the pages of those in use: together they never exceed the pool.
 *
 * A list never changes. A change makes another list, which takes the place of the old one on the
 * shelf; a reader holds the one that it found. An adapter that is loaded gets a number of its own,
 * also under a name that was used before: the number tells what it leaves in the KV cache apart. */
#ifndef ROUTER_SCHEDULER_ADAPTERS_H
#define ROUTER_SCHEDULER_ADAPTERS_H
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct served_adapter {
    char *name;
    char *path;      /* that it was loaded from at run time; NULL: the shards start with it */
    uint32_t pages;  /* that it takes on each rank while it is in use */
    uint32_t number; /* from 1 on; ascending within a list */
    bool leaving;    /* it is being unloaded: not for new requests */
};
struct served_adapters {
    atomic_uint holders;
    uint32_t n;
    struct served_adapter v[];
};

/* All four: a new list, held once by the caller; NULL: no memory. `s` is not released. */
struct served_adapters *served_adapters_none(void);
/* With one more at the end; name and path (or NULL) are copied. */
struct served_adapters *served_adapters_with(const struct served_adapters *s,
                                             const struct served_adapter *more);
struct served_adapters *served_adapters_without(const struct served_adapters *s, uint32_t number);
struct served_adapters *served_adapters_marked(const struct served_adapters *s, uint32_t number,
                                               bool leaving);
struct served_adapters *served_adapters_hold(struct served_adapters *s); /* once more; any thread */
void served_adapters_release(struct served_adapters *s); /* any thread; NULL: fine */
/* The one that new requests mean by the name, or NULL. */
const struct served_adapter *served_adapters_find(const struct served_adapters *s,
                                                  const char *name);

/* Where other threads find the list. */
struct adapter_shelf {
    pthread_mutex_t lock;
    struct served_adapters *now; /* NULL: nothing yet */
};
void adapter_shelf_init(struct adapter_shelf *f);
void adapter_shelf_fini(struct adapter_shelf *f);
void adapter_shelf_put(struct adapter_shelf *f, struct served_adapters *s); /* holds it once more */
struct served_adapters *adapter_shelf_hold(struct adapter_shelf *f); /* to be released; or NULL */
bool adapter_shelf_has(struct adapter_shelf *f, const char *name);   /* for new requests */

enum {
    ADAPTERS_MAX_UNLISTED = 256,
    ADAPTER_FIRST_UNLISTED = 1 << 30,
    ADAPTER_UNNUMBERED = UINT32_MAX
};

struct adapter_use {
    uint32_t known;   /* requests that name it, from their arrival to their end */
    uint32_t running; /* of them, in the shards' batches */
};
/* The scheduler thread's own view. */
struct adapter_books {
    struct served_adapters *list;
    struct adapter_use *use;               /* [list->n] */
    char *unlisted[ADAPTERS_MAX_UNLISTED]; /* names that only a peer knows which lists none */
    uint32_t pool;                         /* pages that adapters in use share */
    uint32_t pages;                        /* of those with any that runs */
    uint32_t next_number;
};
/* Holds `s`. False: no memory. */
bool adapters_init(struct adapter_books *b, struct served_adapters *s, uint32_t pool);
void adapters_free(struct adapter_books *b);
/* Another list; the counts of those that are in both stay. False: no memory, nothing changed. */
bool adapters_replace(struct adapter_books *b, struct served_adapters *s);
/* 0: the model as it is (`name` NULL or ""); the number of the listed adapter; for names that are
 * not listed another one each. ADAPTER_UNNUMBERED: too many of those. */
uint32_t adapters_number(struct adapter_books *b, const char *name);
uint32_t adapters_known(const struct adapter_books *b, uint32_t number);
/* May a request with it run beside those that do? Always true for what is not listed. */
bool adapters_fit(const struct adapter_books *b, uint32_t number);
/* The next four do nothing for what is not listed (any more). */
void adapters_come(struct adapter_books *b, uint32_t number); /* a request that names it */
void adapters_go(struct adapter_books *b, uint32_t number);
void adapters_enter(struct adapter_books *b, uint32_t number); /* it runs */
void adapters_leave(struct adapter_books *b, uint32_t number);
#endif
