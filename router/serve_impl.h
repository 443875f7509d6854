/* serve_impl.h - shared by the start of a router (serve_start.c) and its life (serve.c). */
#ifndef ROUTER_SERVE_IMPL_H
#define ROUTER_SERVE_IMPL_H
#include "router/fleet/discover.h"
#include "router/http/keys.h"
#include "router/models/edge.h"
#include "router/serve.h"
#include <pthread.h>

enum service_event { STARTED = 1, START_FAILED, LOST };

struct router_service {
    struct keys keys;
    struct tls *tls; /* NULL: plain HTTP */
    struct cluster cluster;
    const struct router_config *c;
    struct edge edge;
    struct tokenizer *tokenizer;
    struct chat *chat;
    struct vision *vision;
    const char **domains; /* that images may come from; NULL: any */
    char *domain_text;
    char *dir, *draft_target;
    struct kv_publisher *kv_events; /* NULL: none are published */
    struct targets targets;         /* of the first model's replicas */
    pthread_t loop, starter;
    bool looping, starting;
    bool lost;     /* the first model's shards, for good */
    int64_t asked; /* ms: the last signal to stop; 0: none */
    int signal_fd, event_fd;
    atomic_int event;       /* the newest, from the starter or the scheduler */
    struct fleet *fleet;    /* with STARTED */
    struct err start_error; /* with START_FAILED */
    char why_lost[400];     /* with LOST */
};

/* Check the configuration, load the first model's text side, open the port, and begin to connect to
 * the shards on a thread of its own, which reports STARTED or START_FAILED through event_fd. 0 or
 * an error; service_free() afterwards in both cases. */
int service_start(struct router_service *s, struct err *e);
/* Free what service_start() made. Threads have ended by then. */
void service_free(struct router_service *s);
#endif
