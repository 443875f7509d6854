#include "router/generate/question.h"
#include "common/clock.h"
#include "common/thread/cond.h"
#include <pthread.h>
#include <stdlib.h>

struct question {
    pthread_mutex_t lock;
    pthread_cond_t answered;
    struct buf text;
    bool yes, done;
    uint32_t holders;
};

struct question *question_new(void)
{
    struct question *q = calloc(1, sizeof(*q));
    if (!q)
        return NULL;
    pthread_mutex_init(&q->lock, NULL);
    cond_init(&q->answered);
    q->holders = 2;
    return q;
}

static void drop(struct question *q)
{
    pthread_mutex_lock(&q->lock);
    const bool last = --q->holders == 0;
    pthread_mutex_unlock(&q->lock);
    if (!last)
        return;
    buf_free(&q->text);
    pthread_cond_destroy(&q->answered);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

void question_answer(struct question *q, struct buf *text, bool yes)
{
    pthread_mutex_lock(&q->lock);
    q->text = *text;
    *text = (struct buf)BUF_INIT;
    q->yes = yes;
    q->done = true;
    pthread_cond_signal(&q->answered);
    pthread_mutex_unlock(&q->lock);
    drop(q);
}

bool question_wait(struct question *q, bool asked, int64_t ms, struct buf *out, bool *yes)
{
    const struct timespec until = clock_deadline(ms);
    pthread_mutex_lock(&q->lock);
    q->holders -= !asked;
    while (asked && !q->done && pthread_cond_timedwait(&q->answered, &q->lock, &until) == 0)
        ;
    const bool done = q->done;
    if (done)
        buf_add(out, q->text.p, q->text.len);
    *yes = done && q->yes;
    pthread_mutex_unlock(&q->lock);
    drop(q);
    return done;
}
