#include "router/store/store.h"
#include "common/clock.h"
#include "common/cond.h"
#include "common/log/log.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* BUSY_MS: a router that is being replaced may still finish its last requests. */
enum { QUEUE_BYTES = 64 << 20, CHAIN_BYTES = 64 << 20, BUSY_MS = 10000, LOOK_S = 60 };
enum { SCHEMA = 1 };

enum statement {
    S_PUT,
    S_GET,
    S_USED,
    S_LOSE,
    S_SIZE,
    S_DELETE,
    S_EXPIRE,
    S_OLDEST,
    S_BEGIN,
    S_COMMIT,
    S_ROLLBACK,
    S_TOTAL,
    N_STATEMENTS
};
static const char *const statements[N_STATEMENTS] = {
    [S_PUT] = "INSERT OR REPLACE INTO responses (id, owner, previous, state, used, bytes, response,"
              " input) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    [S_GET] = "SELECT previous, state, response, input FROM responses"
              " WHERE id = ?1 AND owner = ?2 AND used > ?3",
    [S_USED] = "UPDATE responses SET used = ?2 WHERE id = ?1",
    [S_LOSE] = "UPDATE responses SET state = 2 WHERE id = ?1 AND state = 1",
    [S_SIZE] = "SELECT bytes FROM responses WHERE id = ?1",
    [S_DELETE] = "DELETE FROM responses WHERE id = ?1 AND owner = ?2 AND used > ?3"
                 " RETURNING bytes",
    [S_EXPIRE] = "DELETE FROM responses WHERE used <= ?1",
    [S_OLDEST] = "DELETE FROM responses WHERE rowid ="
                 " (SELECT rowid FROM responses ORDER BY used, rowid LIMIT 1) RETURNING bytes",
    [S_BEGIN] = "BEGIN IMMEDIATE",
    [S_COMMIT] = "COMMIT",
    [S_ROLLBACK] = "ROLLBACK",
    [S_TOTAL] = "SELECT count(*), coalesce(sum(bytes), 0) FROM responses"};

/* A response whose end could not be written, and neither could its new state. */
struct lost {
    char id[STORE_ID];
    struct lost *next;
};

struct store {
    struct store_options o;
    sqlite3 *db; /* owned by the thread */
    sqlite3_stmt *st[N_STATEMENTS];
    uint64_t bytes, count;
    struct lost *lost; /* the thread's */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t turn;
    struct store_job *first, **last; /* under the lock, like the next two */
    size_t waiting;                  /* bytes of queued writes */
    bool stop;
};

/* ------------------------------------------------------------------ SQLite */

static int failed(struct store *s, struct err *e)
{
    return err_set(e, ERR_SYSTEM, "the response store: %s", sqlite3_errmsg(s->db));
}

static void bind_text(sqlite3_stmt *st, int at, const char *text)
{
    sqlite3_bind_text(st, at, text, -1, SQLITE_STATIC);
}

/* Runs a statement that returns no rows. */
static int step(struct store *s, enum statement which, struct err *e)
{
    const int rc = sqlite3_step(s->st[which]);
    sqlite3_reset(s->st[which]);
    return rc == SQLITE_DONE || rc == SQLITE_ROW ? 0 : failed(s, e);
}

static int64_t now_s(void) { return (int64_t)time(NULL); }
static int64_t oldest_s(const struct store *s) { return now_s() - s->o.ttl_s; }

static int count(struct store *s, struct err *e)
{
    sqlite3_stmt *st = s->st[S_TOTAL];
    const int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        s->count = (uint64_t)sqlite3_column_int64(st, 0);
        s->bytes = (uint64_t)sqlite3_column_int64(st, 1);
    }
    sqlite3_reset(st);
    return rc == SQLITE_ROW ? 0 : failed(s, e);
}

/* Runs a statement that deletes one row at most, and returns its bytes. *any: there was one. A
 * count() instead would read the whole table for each. */
static int remove_one(struct store *s, enum statement which, bool *any, struct err *e)
{
    sqlite3_stmt *st = s->st[which];
    int rc = sqlite3_step(st);
    const uint64_t bytes = rc == SQLITE_ROW ? (uint64_t)sqlite3_column_int64(st, 0) : 0;
    *any = rc == SQLITE_ROW;
    while (rc == SQLITE_ROW) /* the deletion ends, and is committed, behind the last row */
        rc = sqlite3_step(st);
    sqlite3_reset(st);
    if (rc != SQLITE_DONE)
        return failed(s, e);
    s->bytes -= bytes;
    s->count -= *any;
    return 0;
}

int store_missing(const char *id, struct err *e)
{
    const bool talk = !strncmp(id, STORE_CONVERSATION, strlen(STORE_CONVERSATION));
    return err_set(e, ERR_NOT_FOUND, "%s with id '%.70s' not found.",
                   talk ? "Conversation" : "Response", id);
}

/* Deletes the least recently used responses; within a transaction. */
static int make_room(struct store *s, struct err *e)
{
    sqlite3_bind_int64(s->st[S_EXPIRE], 1, oldest_s(s));
    if (step(s, S_EXPIRE, e) != 0)
        return -1;
    if (sqlite3_changes(s->db) > 0 && count(s, e) != 0)
        return -1;
    bool any = true;
    while (any && s->count && (s->count > s->o.max_count || s->bytes > s->o.max_bytes))
        if (remove_one(s, S_OLDEST, &any, e) != 0)
            return -1;
    return 0;
}

static int put(struct store *s, const char *owner, const struct stored *v, struct err *e)
{
    sqlite3_stmt *st = s->st[S_PUT], *size = s->st[S_SIZE];
    const uint64_t bytes = strlen(v->response) + strlen(v->input);
    if (bytes > s->o.max_bytes)
        return err_set(e, ERR_VALIDATION, "it is larger than the whole store");
    bind_text(size, 1, v->id);
    if (sqlite3_step(size) == SQLITE_ROW) {
        s->bytes -= (uint64_t)sqlite3_column_int64(size, 0);
        s->count--;
    }
    sqlite3_reset(size);
    bind_text(st, 1, v->id);
    bind_text(st, 2, owner);
    bind_text(st, 3, v->previous);
    sqlite3_bind_int(st, 4, (int)v->state);
    sqlite3_bind_int64(st, 5, now_s());
    sqlite3_bind_int64(st, 6, (int64_t)bytes);
    bind_text(st, 7, v->response);
    bind_text(st, 8, v->input);
    if (step(s, S_PUT, e) != 0)
        return -1;
    s->bytes += bytes;
    s->count++;
    return make_room(s, e);
}

static char *column(sqlite3_stmt *st, int at)
{
    const char *text = (const char *)sqlite3_column_text(st, at);
    return text ? strdup(text) : NULL;
}

static bool is_lost(const struct store *s, const char *id)
{
    const struct lost *l = s->lost;
    while (l && strcmp(l->id, id) != 0)
        l = l->next;
    return l != NULL;
}

static int get(struct store *s, const char *id, const char *owner, struct stored *out,
               struct err *e)
{
    sqlite3_stmt *st = s->st[S_GET];
    *out = (struct stored){0};
    bind_text(st, 1, id);
    bind_text(st, 2, owner);
    sqlite3_bind_int64(st, 3, oldest_s(s));
    const int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        snprintf(out->id, sizeof(out->id), "%s", id);
        snprintf(out->previous, sizeof(out->previous), "%s",
                 (const char *)sqlite3_column_text(st, 0));
        out->state = (enum store_state)sqlite3_column_int(st, 1);
        if (out->state == STORED_RUNNING && is_lost(s, id))
            out->state = STORED_LOST;
        out->response = column(st, 2);
        out->input = column(st, 3);
    }
    sqlite3_reset(st);
    if (rc == SQLITE_DONE)
        return store_missing(id, e);
    if (rc != SQLITE_ROW)
        return failed(s, e);
    return out->response && out->input ? 0 : err_nomem(e);
}

static void stored_free(struct stored *v)
{
    free(v->response);
    free(v->input);
}

static int chain(struct store *s, struct store_job *j)
{
    char id[STORE_ID];
    size_t bytes = 0;
    memcpy(id, j->what.id, sizeof(id));
    j->found = calloc(STORE_CHAIN_MAX, sizeof(*j->found));
    if (!j->found)
        return err_nomem(&j->err);
    while (*id) {
        struct err ignored;
        struct stored *v = &j->found[j->n_found];
        if (j->n_found == STORE_CHAIN_MAX || bytes > CHAIN_BYTES)
            return err_set(&j->err, ERR_VALIDATION, "the stored conversation is too long");
        j->n_found++;
        if (get(s, id, j->owner, v, &j->err) != 0)
            return -1;
        assert(v->response && v->input);
        bytes += strlen(v->response) + strlen(v->input);
        bind_text(s->st[S_USED], 1, id);
        sqlite3_bind_int64(s->st[S_USED], 2, now_s());
        (void)step(s, S_USED, &ignored); /* a full disk must not prevent reading */
        memcpy(id, v->previous, sizeof(id));
    }
    for (uint32_t i = 0; i < j->n_found / 2; i++) {
        struct stored swap = j->found[i];
        j->found[i] = j->found[j->n_found - 1 - i];
        j->found[j->n_found - 1 - i] = swap;
    }
    return 0;
}

/* One commit, and so one sync of the disk, for a whole conversation. */
static int chain_committed(struct store *s, struct store_job *j)
{
    struct err ignored;
    const bool begun = step(s, S_BEGIN, &ignored) == 0;
    const int rc = chain(s, j);
    if (begun && step(s, S_COMMIT, &ignored) != 0)
        (void)step(s, S_ROLLBACK, &ignored);
    return rc;
}

static int delete (struct store *s, const char *id, const char *owner, struct err *e)
{
    bind_text(s->st[S_DELETE], 1, id);
    bind_text(s->st[S_DELETE], 2, owner);
    sqlite3_bind_int64(s->st[S_DELETE], 3, oldest_s(s));
    bool any;
    if (remove_one(s, S_DELETE, &any, e) != 0)
        return -1;
    return any ? 0 : store_missing(id, e);
}

/* In one transaction. j->found is what is stored now. */
static int edit(struct store *s, struct store_job *j)
{
    struct err ignored;
    j->found = calloc(1, sizeof(*j->found));
    if (!j->found)
        return err_nomem(&j->err);
    j->n_found = 1;
    if (step(s, S_BEGIN, &j->err) != 0)
        return -1;
    int rc = get(s, j->what.id, j->owner, j->found, &j->err);
    rc = rc ? rc : j->edit(j->found, j->what.input, &j->err);
    rc = rc ? rc : put(s, j->owner, j->found, &j->err);
    rc = rc ? rc : step(s, S_COMMIT, &j->err);
    if (rc != 0) {
        (void)step(s, S_ROLLBACK, &ignored);
        (void)count(s, &ignored);
    }
    return rc;
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

static int write_lost(struct store *s, const char *id)
{
    struct err ignored;
    bind_text(s->st[S_LOSE], 1, id);
    return step(s, S_LOSE, &ignored);
}

/* The end of a response was not written: it must not be running for ever. */
static void lose(struct store *s, const char *id)
{
    struct lost *l = write_lost(s, id) == 0 ? NULL : malloc(sizeof(*l));
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
    while ((l = s->lost) && write_lost(s, l->id) == 0) {
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
    struct err ignored;
    for (struct store_job *j = list; n > 0; j = j->next, n--) {
        if (is_dropped(j))
            continue;
        int rc = step(s, S_BEGIN, &j->err);
        if (rc == 0 &&
            (put(s, j->owner, &j->what, &j->err) != 0 || step(s, S_COMMIT, &j->err) != 0)) {
            (void)step(s, S_ROLLBACK, &ignored);
            (void)count(s, &ignored);
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
    struct err e, ignored;
    uint32_t n = 0;
    int rc = step(s, S_BEGIN, &e);
    struct store_job *j = list, *next;
    for (; j && j->kind == STORE_PUT; j = j->next, n++) {
        j->err = (struct err)ERR_INIT;
        rc = rc || is_dropped(j) ? rc : put(s, j->owner, &j->what, &e);
    }
    if (rc == 0)
        rc = step(s, S_COMMIT, &e);
    if (rc != 0) {
        (void)step(s, S_ROLLBACK, &ignored);
        (void)count(s, &ignored);
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
        rc = edit(s, j);
    } else if (j->kind == STORE_CHAIN) {
        rc = chain_committed(s, j);
    } else if (j->kind == STORE_DELETE) {
        rc = delete (s, j->what.id, j->owner, &j->err);
    } else if (!(j->found = calloc(1, sizeof(*j->found)))) {
        rc = err_nomem(&j->err);
    } else {
        rc = get(s, j->what.id, j->owner, &j->found[0], &j->err);
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
    struct err e, ignored;
    write_all_lost(s);
    if (step(s, S_BEGIN, &e) == 0 && (make_room(s, &e) != 0 || step(s, S_COMMIT, &e) != 0)) {
        (void)step(s, S_ROLLBACK, &ignored);
        (void)count(s, &ignored);
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

static int run_sql(struct store *s, const char *sql, struct err *e)
{
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : failed(s, e);
}

static int64_t user_version(struct store *s)
{
    sqlite3_stmt *st = NULL;
    int64_t v = -1;
    if (sqlite3_prepare_v2(s->db, "PRAGMA user_version", -1, &st, NULL) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW)
        v = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return v;
}

static int make_tables(struct store *s, struct err *e)
{
    char sql[64];
    const int64_t v = user_version(s);
    if (v != 0 && v != SCHEMA)
        return v < 0 ? failed(s, e)
                     : err_set(e, ERR_VALIDATION, "the response store is of another version");
    snprintf(sql, sizeof(sql), "PRAGMA user_version = %d", SCHEMA);
    return run_sql(s,
                   "CREATE TABLE IF NOT EXISTS responses (id TEXT PRIMARY KEY, owner TEXT NOT NULL,"
                   " previous TEXT NOT NULL, state INTEGER NOT NULL, used INTEGER NOT NULL,"
                   " bytes INTEGER NOT NULL, response TEXT NOT NULL, input TEXT NOT NULL);"
                   "CREATE INDEX IF NOT EXISTS by_use ON responses (used);",
                   e) ||
                   run_sql(s, sql, e)
               ? -1
               : 0;
}

static int open_file(struct store *s, struct err *e)
{
    char path[4096];
    if (mkdir(s->o.folder, 0700) != 0 && errno != EEXIST)
        return err_sys(e, "--response-store %s", s->o.folder);
    snprintf(path, sizeof(path), "%s/responses.sqlite", s->o.folder);
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(e, "%s", path);
    close(fd);
    if (sqlite3_open_v2(path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) !=
        SQLITE_OK)
        return failed(s, e);
    sqlite3_busy_timeout(s->db, BUSY_MS);
    if (run_sql(s, "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL;", e) != 0 ||
        run_sql(s, "PRAGMA synchronous = FULL; PRAGMA journal_size_limit = 16777216;", e) != 0 ||
        make_tables(s, e) != 0 || run_sql(s, "UPDATE responses SET state = 2 WHERE state = 1", e))
        return err_wrap(e, "%s", path);
    for (int i = 0; i < N_STATEMENTS; i++)
        if (sqlite3_prepare_v3(s->db, statements[i], -1, SQLITE_PREPARE_PERSISTENT, &s->st[i],
                               NULL) != SQLITE_OK)
            return failed(s, e);
    return count(s, e);
}

static void close_file(struct store *s)
{
    for (int i = 0; i < N_STATEMENTS; i++)
        sqlite3_finalize(s->st[i]);
    sqlite3_close(s->db);
    for (struct lost *l = s->lost, *next; l; l = next) {
        next = l->next;
        free(l);
    }
}

struct store *store_open(const struct store_options *o, struct err *e)
{
    struct store *s = calloc(1, sizeof(*s));
    if (!s)
        return err_nomem(e), NULL;
    s->o = *o;
    s->last = &s->first;
    pthread_mutex_init(&s->lock, NULL);
    cond_init(&s->turn);
    int rc = open_file(s, e);
    if (rc == 0 && pthread_create(&s->thread, NULL, run, s) != 0)
        rc = err_set(e, ERR_SYSTEM, "cannot start a thread");
    if (rc == 0)
        return s;
    close_file(s);
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
    close_file(s);
    pthread_cond_destroy(&s->turn);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
