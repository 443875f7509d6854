/* serve_impl.h - private: shared by the start (serve_start.c) and the main loop (serve.c) of a
 * router. */
#ifndef ROUTER_SERVE_IMPL_H
#define ROUTER_SERVE_IMPL_H
#include "common/rpc/session.h"
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
    char session[RPC_SESSION_TEXT];
    const struct router_config *c;
    struct edge edge;
    struct tokenizer *tokenizer;
    struct chat *chat;
    struct vision *vision;
    const char **domains; /* hosts that images may be fetched from; NULL: any */
    char *domain_text;
    char *dir, *draft_target;
    struct kv_publisher *kv_events; /* NULL: not published */
    struct targets targets;         /* of the first model's replicas */
    pthread_t loop, starter;
    bool looping, starting;
    bool lost;     /* the first model's shards are lost for good */
    int64_t asked; /* clock_ms() of the last stop signal; 0: none */
    int signal_fd, event_fd;
    atomic_int event;       /* the latest, from the starting thread or the scheduler */
    struct fleet *fleet;    /* with STARTED */
    struct err start_error; /* with START_FAILED */
    char why_lost[400];     /* with LOST */
};

/* Checks the configuration, loads the first model's tokenizer and template, opens the port, and
 * connects to the shards on a separate thread. That reports STARTED or START_FAILED through
 * event_fd. 0 or an error; call service_free() in both cases. */
int service_start(struct router_service *s, struct err *e);
/* Frees what service_start() created. All threads must have ended. */
void service_free(struct router_service *s);
#endif
