#include "router/generate/workers.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

struct workers {
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct job *first, **last;
    bool stop;
    uint32_t n;
    pthread_t thread[];
};

static struct job *take(struct workers *w)
{
    pthread_mutex_lock(&w->lock);
    while (!w->first && !w->stop)
        pthread_cond_wait(&w->more, &w->lock);
    struct job *j = w->first;
    if (j && !(w->first = j->next))
        w->last = &w->first;
    pthread_mutex_unlock(&w->lock);
    return j;
}

static void *work(void *arg)
{
    struct tok_scratch *scratch = NULL;
    for (struct job *j; (j = take(arg));)
        j->run(j, &scratch);
    tok_scratch_free(scratch);
    return NULL;
}

struct workers *workers_new(uint32_t n, struct err *e)
{
    struct workers *w = calloc(1, sizeof(*w) + n * sizeof(w->thread[0]));
    if (!w) {
        err_nomem(e);
        return NULL;
    }
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->more, NULL);
    w->last = &w->first;
    for (; w->n < n; w->n++)
        if (pthread_create(&w->thread[w->n], NULL, work, w) != 0) {
            err_set(e, ERR_SYSTEM, "cannot start validation worker %u of %u", w->n + 1, n);
            workers_free(w);
            return NULL;
        }
    return w;
}

void workers_submit(struct workers *w, struct job *j)
{
    j->next = NULL;
    pthread_mutex_lock(&w->lock);
    *w->last = j;
    w->last = &j->next;
    pthread_cond_signal(&w->more);
    pthread_mutex_unlock(&w->lock);
}

void workers_stop(struct workers *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_broadcast(&w->more);
    pthread_mutex_unlock(&w->lock);
    for (uint32_t i = 0; i < w->n; i++)
        pthread_join(w->thread[i], NULL);
    w->n = 0;
}

void workers_free(struct workers *w)
{
    if (!w)
        return;
    workers_stop(w);
    pthread_cond_destroy(&w->more);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
