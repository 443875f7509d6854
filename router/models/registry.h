/* registry.h - private to this folder. */
#ifndef ROUTER_MODELS_REGISTRY_H
#define ROUTER_MODELS_REGISTRY_H
#include "router/models/models.h"
#include <pthread.h>

/* WANTED -> LOADING -> LOADED -> (LEAVING: no longer found by name) -> freed */
enum model_state { MODEL_WANTED, MODEL_LOADING, MODEL_LOADED, MODEL_LEAVING };
struct model {
    struct edge edge; /* must be first */
    struct model *next;
    struct models *models;
    enum model_state state;
    bool lost; /* its shards are lost for good: no longer found by name, LEAVING next */
    char *name, *folder;
    struct tokenizer *tokenizer;
    struct chat *chat;
    struct vision *vision;
    struct fleet *fleet;
    uint32_t slot;
    uint32_t users;
    int64_t used_ms; /* clock_ms() of the last release by a request */
    struct models_wait *first, **last;
};

enum slot_state { SLOT_FREE, SLOT_LOADING, SLOT_READY, SLOT_FAILED, SLOT_UNLOADING };
struct slot { /* the launcher's state of a model; models thread only */
    enum slot_state state;
    char detail[480]; /* READY: the socket path; FAILED: the reason */
};

struct models {
    struct edge *home;
    const char *folder;
    pthread_mutex_t lock;
    struct model *list; /* all models not freed yet, least recently requested first */
    bool closed, stop;
    int fd, bell_fd;
    pthread_t thread;
    uint32_t n_slots;
    struct slot *slots;
};

/* Wakes the thread of the models. Any thread. */
void models_ring(struct models *m);
/* Notifies all waiters of `q`. With the lock, which is released meanwhile. */
void models_notify(struct models *m, struct model *q, const struct err *why);
#endif
