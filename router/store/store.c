#include "common/clock.h"
#include "common/log/log.h"
#include "common/thread/cond.h"
#include "router/store/store_impl.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { QUEUE_BYTES = 64 << 20, LOOK_S = 60 };

static void stored_free(struct stored *v)
{
    free(v->response);
    free(v->input);
}

/* ------------------------------------------------------------------ the thread */

static void not_stored(const char *id, const char *why)
{
    LOG(LOG_WARN, "a response was not stored", LOGS("id", id), LOGS("error", why));
}

static void free_job(struct store_job *j)
{
    store_job_clear(j);
    free(j);
}

/* The end of a response was not written: it must not be running for ever. */
static void lose(struct store *s, const char *id)
{
    struct lost *l = rows_lose(s, id) == 0 ? NULL : malloc(sizeof(*l));
    if (!l)
        return;
    snprintf(l->id, sizeof(l->id), "%s", id);
    l->next = s->lost;
    s->lost = l;
}

/* Writes what could not be written before. */
static void write_all_lost(struct store *s)
{
    struct lost *l;
    while ((l = s->lost) && rows_lose(s, l->id) == 0) {
        s->lost = l->next;
        free(l);
    }
}

/* Its content was freed when it was submitted: too much was waiting. */
static bool is_dropped(const struct store_job *j) { return !j->what.response; }

static void fail_write(struct store *s, struct store_job *j)
{
    not_stored(j->what.id, j->err.msg);
    if (j->what.state != STORED_RUNNING)
        lose(s, j->what.id);
}

/* Writes one by one after a failed common transaction. */
static void write_each(struct store *s, struct store_job *list, uint32_t n)
{
    for (struct store_job *j = list; n > 0; j = j->next, n--) {
        if (is_dropped(j))
            continue;
        int rc = rows_step(s, S_BEGIN, &j->err);
        if (rc == 0 && (rows_put(s, j->owner, &j->what, &j->err) != 0 ||
                        rows_step(s, S_COMMIT, &j->err) != 0)) {
            rows_undo(s);
            rc = -1;
        }
        if (rc == 0)
            j->err = (struct err)ERR_INIT;
        else
            fail_write(s, j);
    }
}

/* Returns a write's job to its owner. */
static void give_back(struct store_job *j)
{
    if (j->done)
        j->done(j);
    else
        free_job(j);
}

/* Commits the writes at the head of the list in one transaction. Returns the rest. */
static struct store_job *write_all(struct store *s, struct store_job *list)
{
    struct err e;
    uint32_t n = 0;
    int rc = rows_step(s, S_BEGIN, &e);
    struct store_job *j = list, *next;
    for (; j && j->kind == STORE_PUT; j = j->next, n++) {
        j->err = (struct err)ERR_INIT;
        rc = rc || is_dropped(j) ? rc : rows_put(s, j->owner, &j->what, &e);
    }
    if (rc == 0)
        rc = rows_step(s, S_COMMIT, &e);
    if (rc != 0) {
        rows_undo(s);
        write_each(s, list, n);
    }
    for (; n > 0; list = next, n--) {
        next = list->next;
        if (is_dropped(list)) {
            err_set(&list->err, ERR_SYSTEM, "the disk is too slow");
            fail_write(s, list);
        }
        give_back(list);
    }
    return list;
}

static void read_one(struct store *s, struct store_job *j)
{
    int rc = 0;
    if (j->kind == STORE_EDIT && !j->what.input) {
        rc = err_set(&j->err, ERR_SYSTEM, "the disk is too slow");
    } else if (j->kind == STORE_EDIT) {
        rc = rows_edit(s, j);
    } else if (j->kind == STORE_CHAIN) {
        rc = rows_chain(s, j);
    } else if (j->kind == STORE_DELETE) {
        rc = rows_delete(s, j->what.id, j->owner, &j->err);
    } else if (!(j->found = calloc(1, sizeof(*j->found)))) {
        rc = err_nomem(&j->err);
    } else {
        rc = rows_get(s, j->what.id, j->owner, &j->found[0], &j->err);
        j->n_found = 1;
    }
    if (rc == 0)
        j->err = (struct err)ERR_INIT;
    else if (!j->done)
        not_stored(j->what.id, j->err.msg);
    give_back(j);
}

static void tidy(struct store *s)
{
    struct err e;
    write_all_lost(s);
    if (rows_step(s, S_BEGIN, &e) == 0 &&
        (rows_make_room(s, &e) != 0 || rows_step(s, S_COMMIT, &e) != 0)) {
        rows_undo(s);
    }
}

/* Waits for jobs, in order; NULL: none for a while. *stop: there will be no more. */
static struct store_job *await(struct store *s, bool *stop)
{
    const struct timespec until = clock_deadline((int64_t)LOOK_S * 1000);
    pthread_mutex_lock(&s->lock);
    while (!s->first && !s->stop && pthread_cond_timedwait(&s->turn, &s->lock, &until) != ETIMEDOUT)
        ;
    struct store_job *list = s->first;
    *stop = s->stop && !list;
    s->first = NULL;
    s->last = &s->first;
    s->waiting = 0;
    pthread_mutex_unlock(&s->lock);
    return list;
}

static void *run(void *arg)
{
    struct store *s = arg;
    bool stop = false;
    while (!stop) {
        struct store_job *j = await(s, &stop);
        if (!j && !stop)
            tidy(s);
        while (j) {
            if (j->kind == STORE_PUT) {
                j = write_all(s, j);
                continue;
            }
            struct store_job *next = j->next;
            read_one(s, j);
            j = next;
        }
    }
    return NULL;
}

/* ------------------------------------------------------------------ any thread */

void store_submit(struct store *s, struct store_job *j)
{
    const size_t n = (j->what.response ? strlen(j->what.response) : 0) +
                     (j->what.input ? strlen(j->what.input) : 0);
    j->next = NULL;
    j->found = NULL;
    j->n_found = 0;
    pthread_mutex_lock(&s->lock);
    if (s->waiting + n > QUEUE_BYTES && n)
        store_job_clear(j);
    else
        s->waiting += n;
    *s->last = j;
    s->last = &j->next;
    pthread_cond_signal(&s->turn);
    pthread_mutex_unlock(&s->lock);
}

void store_job_clear(struct store_job *j)
{
    for (uint32_t i = 0; j->found && i < j->n_found; i++)
        stored_free(&j->found[i]);
    free(j->found);
    j->found = NULL;
    j->n_found = 0;
    stored_free(&j->what);
    j->what.response = j->what.input = NULL;
}

/* ------------------------------------------------------------------ life */

struct store *store_open(const struct store_options *o, struct err *e)
{
    struct store *s = calloc(1, sizeof(*s));
    if (!s)
        return err_nomem(e), NULL;
    s->o = *o;
    s->last = &s->first;
    pthread_mutex_init(&s->lock, NULL);
    cond_init(&s->turn);
    int rc = rows_open(s, e);
    if (rc == 0 && pthread_create(&s->thread, NULL, run, s) != 0)
        rc = err_set(e, ERR_SYSTEM, "cannot start a thread");
    if (rc == 0)
        return s;
    rows_close(s);
    pthread_cond_destroy(&s->turn);
    pthread_mutex_destroy(&s->lock);
    free(s);
    return NULL;
}

void store_close(struct store *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_signal(&s->turn);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    rows_close(s);
    pthread_cond_destroy(&s->turn);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
