#include "model-server/ranks.h"
#include "common/clock.h"
#include "common/thread/cond.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SHM_TIMEOUT_MS = 120 * 1000, LOOK_MS = 500 };

struct comm *ranks_join(const struct ranks_options *o, struct err *e)
{
    if (o->world == 1)
        return comm_solo();
    if (o->nodes == 1)
        return comm_shm_open(o->group && *o->group ? o->group : o->uds_path, (int)o->rank,
                             (int)o->world, SHM_TIMEOUT_MS, e);
    struct comm_tcp_options t = {.host = o->master_addr,
                                 .port = (int)o->master_port,
                                 .rank = (int)o->rank,
                                 .world = (int)o->world,
                                 .nodes = (int)o->nodes,
                                 .cluster = o->cluster,
                                 .timeout_ms = (int)o->timeout_s * 1000};
    return comm_tcp_open(&t, e);
}

int ranks_split(struct comm *all, uint32_t stages, struct comm **stage, struct comm **across,
                struct err *e)
{
    const int each = all->world / (int)stages; /* ranks of a stage */
    *stage = all;
    *across = NULL;
    if (stages == 1)
        return 0;
    if (!(*stage = comm_split(all, all->rank / each, e)) ||
        !(*across = comm_split(all, all->rank % each, e)))
        return err_wrap(e, "%u stages", stages);
    return 0;
}

void ranks_part(struct comm *all, struct comm *stage, struct comm *across)
{
    comm_close(across);
    if (stage != all)
        comm_close(stage);
}

void ranks_stand_alone(struct ranks_alone *a, uint32_t rank, uint32_t world, uint32_t nodes,
                       uint32_t stages)
{
    const int each = (int)(world / stages);
    a->all = *comm_solo();
    a->all.rank = (int)rank;
    a->all.world = (int)world;
    a->all.nodes = (int)nodes;
    a->stage = a->across = a->all;
    a->stage.whole = a->across.whole = &a->all;
    a->stage.rank = (int)rank % each;
    a->stage.world = each;
    a->across.rank = (int)rank / each;
    a->across.world = (int)stages;
}

/* ---------------------------------------------------------------- addresses */

static bool away(const struct ranks_options *o, uint32_t rank)
{
    return rank / (o->world / o->nodes) > 0;
}

bool ranks_away(const struct ranks_options *o) { return away(o, o->rank); }

void ranks_local_address(const char *uds_path, uint32_t rank, char out[RANKS_ADDRESS])
{
    const char *port = strrchr(uds_path, ':');
    if (strncmp(uds_path, "tcp://", 6) == 0 && port > uds_path + 5)
        snprintf(out, RANKS_ADDRESS, "%.*s:%lu", (int)(port - uds_path), uds_path,
                 strtoul(port + 1, NULL, 10) + rank);
    else
        snprintf(out, RANKS_ADDRESS, "%s%s-%u", strncmp(uds_path, "unix://", 7) ? "unix://" : "",
                 uds_path, rank);
}

void ranks_address(const struct ranks_options *o, const struct comm *c, uint32_t rank,
                   char out[RANKS_ADDRESS])
{
    if (!away(o, rank)) {
        ranks_local_address(o->uds_path, rank, out);
        return;
    }
    const char *host = comm_tcp_address(c, (int)rank);
    bool six = strchr(host, ':');
    snprintf(out, RANKS_ADDRESS, "tcp://%s%s%s:%u", six ? "[" : "", host, six ? "]" : "",
             o->master_port + 1 + rank);
}

/* ---------------------------------------------------------------- watching */

struct ranks_watch {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool over;
    struct comm *comm;
    void (*fn)(void *arg, bool over, const char *why);
    void *arg;
};

/* Waits for half a second, or until the end: then true. */
static bool pause_is_last(struct ranks_watch *w)
{
    const struct timespec t = clock_deadline(LOOK_MS);
    pthread_mutex_lock(&w->lock);
    while (!w->over && !pthread_cond_timedwait(&w->wake, &w->lock, &t)) {
    }
    bool over = w->over;
    pthread_mutex_unlock(&w->lock);
    return over;
}

/* When machine 0 ends the service, ranks of other machines close in order as well, and may be seen
 * first. So their end is the loss of a rank only if machine 0 is still there at the next look. */
static void *look(void *arg)
{
    struct ranks_watch *w = arg;
    bool again = false;
    while (!pause_is_last(w)) {
        struct err e = ERR_INIT;
        const int gone = w->comm->ops->check(w->comm, &e);
        const int of_machine_0 = COMM_LEFT + w->comm->world / w->comm->nodes;
        const bool over = gone >= COMM_LEFT && gone < of_machine_0;
        if (over || gone < 0 || (gone && again)) {
            w->fn(w->arg, over, e.msg);
            return NULL;
        }
        again = gone != 0;
    }
    return NULL;
}

struct ranks_watch *ranks_watch(const struct ranks_options *o, struct comm *c,
                                void (*fn)(void *arg, bool over, const char *why), void *arg,
                                struct err *e)
{
    if (o->nodes == 1)
        return NULL;
    struct ranks_watch *w = calloc(1, sizeof(*w));
    if (!w)
        return err_nomem(e), NULL;
    w->comm = c, w->fn = fn, w->arg = arg;
    pthread_mutex_init(&w->lock, NULL);
    cond_init(&w->wake);
    if (!pthread_create(&w->thread, NULL, look, w))
        return w;
    free(w);
    err_set(e, ERR_SYSTEM, "cannot start a thread");
    return NULL;
}

void ranks_watch_end(struct ranks_watch *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->over = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
