/* served_adapters.h - immutable, reference-counted lists of the adapters the shards serve, and the
 * place that holds the current list.
 *
 * A change creates a new list, which replaces the current one; readers keep the list they hold.
 * Every loaded adapter gets a new number, even if its name was used before: the number separates
 * its blocks in the KV cache. */
#ifndef ROUTER_SHARDS_SERVED_ADAPTERS_H
#define ROUTER_SHARDS_SERVED_ADAPTERS_H
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Do two hashes of files say that they differ? 0 is unknown. */
static inline bool other_files(uint64_t a, uint64_t b) { return a && b && a != b; }

static inline bool other_words(const char *a, const char *b)
{
    return *a && *b && strcmp(a, b) != 0; /* empty is unknown */
}

struct served_adapter {
    char *name;
    char *path;       /* path it was loaded from at run time; NULL: loaded at start */
    uint32_t pages;   /* memory pages it takes on each rank while in use */
    uint64_t content; /* hash of its files; 0: unknown */
    uint32_t number;  /* from 1; ascending within a list */
    bool leaving;     /* it is being unloaded, or its files are gone: refused for new requests */
};
struct served_adapters {
    atomic_uint holders;
    uint32_t n;
    struct served_adapter v[];
};

/* Each of the four returns a new list with one reference of the caller; NULL: out of memory. `s` is
 * not released. */
struct served_adapters *served_adapters_none(void);
/* Appends `more`; its name and path (or NULL) are copied. */
struct served_adapters *served_adapters_with(const struct served_adapters *s,
                                             const struct served_adapter *more);
struct served_adapters *served_adapters_without(const struct served_adapters *s, uint32_t number);
struct served_adapters *served_adapters_marked(const struct served_adapters *s, uint32_t number,
                                               bool leaving);
/* takes a reference; any thread */
struct served_adapters *served_adapters_hold(struct served_adapters *s);
void served_adapters_release(struct served_adapters *s); /* any thread; NULL is allowed */
/* The adapter that new requests get for this name, or NULL. Valid as long as `s` is held. */
const struct served_adapter *served_adapters_find(const struct served_adapters *s,
                                                  const char *name);
/* True if `s` has an adapter of this name with the same files (or unknown ones), or one that is
 * being unloaded. */
bool served_adapters_same(const struct served_adapters *s, const struct served_adapter *a);

struct adapter_use {
    uint32_t known;   /* requests that name it, from arrival to end */
    uint32_t running; /* those of them in the shards' batches */
};

/* Holds the current list for other threads. Thread-safe. */
struct adapter_shelf {
    pthread_mutex_t lock;
    struct served_adapters *now; /* NULL: none yet */
    struct adapter_use *use;     /* [now->n] use counts as last noted; NULL: none noted */
};
void adapter_shelf_init(struct adapter_shelf *f); /* without a list */
void adapter_shelf_fini(struct adapter_shelf *f); /* releases the list */
/* Replaces the list. Takes a reference of its own. */
void adapter_shelf_put(struct adapter_shelf *f, struct served_adapters *s);
/* A reference to the list, which the caller releases; NULL: there is none. */
struct served_adapters *adapter_shelf_hold(struct adapter_shelf *f);
/* Publishes the use counts of `now`. Out of memory: the previous counts stay. */
void adapter_shelf_note(struct adapter_shelf *f, const struct adapter_use *use);
/* Calls fn for each served adapter with its name and use counts. */
void adapter_shelf_each(struct adapter_shelf *f,
                        void (*fn)(void *arg, const char *name, const struct adapter_use *u),
                        void *arg);
bool adapter_shelf_has(struct adapter_shelf *f, const char *name);   /* available to new requests */
bool adapter_shelf_knows(struct adapter_shelf *f, const char *name); /* available or leaving */
#endif
