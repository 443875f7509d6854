/* The store of responses: order, owners, bounds, what a crash leaves. */
#include "common/buf.h"
#include "router/store/store.h"
#include "tests/unit/test.h"
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static char folder[64];
static time_t clock_is; /* the wall clock; 0: the machine's */

/* In place of libc's. */
time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const time_t is = clock_is ? clock_is : now.tv_sec;
    if (out)
        *out = is;
    return is;
}

static struct store *open_with(uint64_t bytes, uint32_t count, uint32_t ttl)
{
    struct err e = ERR_INIT;
    const struct store_options o = {folder, bytes, count, ttl};
    struct store *s = store_open(&o, &e);
    if (!s)
        fail_msg("%s", e.msg);
    return s;
}

static int setup(void **state)
{
    (void)state;
    clock_is = 0;
    snprintf(folder, sizeof(folder), "/tmp/store-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state)
{
    static const char *const ends[] = {"", "-wal", "-shm"};
    char path[128];
    (void)state;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        snprintf(path, sizeof(path), "%s/responses.sqlite%s", folder, ends[i]);
        unlink(path);
    }
    return rmdir(folder);
}

static struct store_job *put_job(const char *id, const char *owner, const char *previous,
                                 enum store_state state, const char *response)
{
    struct store_job *j = calloc(1, sizeof(*j));
    j->kind = STORE_PUT;
    snprintf(j->owner, sizeof(j->owner), "%s", owner);
    snprintf(j->what.id, sizeof(j->what.id), "%s", id);
    snprintf(j->what.previous, sizeof(j->what.previous), "%s", previous);
    j->what.state = state;
    j->what.response = strdup(response);
    j->what.input = strdup("[]");
    return j;
}

static void put(struct store *s, const char *id, const char *owner, const char *previous,
                enum store_state state, const char *response)
{
    store_submit(s, put_job(id, owner, previous, state, response));
}

struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool over;
};

static void on_done(struct store_job *j)
{
    struct waiter *w = j->arg;
    pthread_mutex_lock(&w->lock);
    w->over = true;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->lock);
}

static void submit_and_wait(struct store *s, struct store_job *j)
{
    struct waiter w = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};
    j->done = on_done;
    j->arg = &w;
    store_submit(s, j);
    pthread_mutex_lock(&w.lock);
    while (!w.over)
        pthread_cond_wait(&w.cond, &w.lock);
    pthread_mutex_unlock(&w.lock);
}

/* Stores a response and waits for it. */
static enum err_kind put_and_wait(struct store *s, const char *id, enum store_state state,
                                  const char *response)
{
    struct store_job *j = put_job(id, "", "", state, response);
    submit_and_wait(s, j);
    const enum err_kind kind = j->err.kind;
    store_job_clear(j);
    free(j);
    return kind;
}

/* The caller clears it. */
static struct store_job ask(struct store *s, enum store_kind kind, const char *id,
                            const char *owner)
{
    struct store_job j = {.kind = kind};
    snprintf(j.owner, sizeof(j.owner), "%s", owner);
    snprintf(j.what.id, sizeof(j.what.id), "%s", id);
    submit_and_wait(s, &j);
    return j;
}

static void is(struct store *s, const char *id, const char *owner, const char *response)
{
    struct store_job j = ask(s, STORE_GET, id, owner);
    if (response) {
        assert_int_equal(j.err.kind, ERR_NONE);
        assert_string_equal(j.found[0].response, response);
        assert_string_equal(j.found[0].input, "[]");
    } else {
        assert_int_equal(j.err.kind, ERR_NOT_FOUND);
    }
    store_job_clear(&j);
}

static int append_letter(struct stored *v, const char *with, struct err *e)
{
    struct buf b = BUF_INIT;
    if (*with == '!')
        return err_set(e, ERR_VALIDATION, "no");
    buf_fmt(&b, "%s%s", v->response, with);
    free(v->response);
    v->response = buf_take(&b);
    return 0;
}

static enum err_kind change(struct store *s, const char *id, const char *owner, const char *with)
{
    struct store_job j = {.kind = STORE_EDIT, .edit = append_letter};
    snprintf(j.owner, sizeof(j.owner), "%s", owner);
    snprintf(j.what.id, sizeof(j.what.id), "%s", id);
    j.what.input = strdup(with);
    submit_and_wait(s, &j);
    const enum err_kind kind = j.err.kind;
    store_job_clear(&j);
    return kind;
}

/* A change that fails, or is another owner's, leaves what is stored as it is. */
TEST_WITH(what_is_stored_is_changed_in_place, setup, teardown)
{
    struct store *s = open_with(10, 100, 100);
    put(s, "a", "ann", "", STORED_ENDED, "1");
    assert_int_equal(change(s, "a", "ann", "2"), ERR_NONE);
    is(s, "a", "ann", "12");
    assert_int_equal(change(s, "a", "ann", "!"), ERR_VALIDATION);
    assert_int_equal(change(s, "a", "bob", "3"), ERR_NOT_FOUND);
    assert_int_equal(change(s, "b", "ann", "3"), ERR_NOT_FOUND);
    assert_int_equal(change(s, "a", "ann", "more than the store holds"), ERR_VALIDATION);
    is(s, "a", "ann", "12");
    assert_int_equal(change(s, "a", "ann", "34"), ERR_NONE);
    is(s, "a", "ann", "1234");
    struct store_job *j = calloc(1, sizeof(*j)); /* nobody waits for it */
    *j = (struct store_job){.kind = STORE_EDIT, .edit = append_letter};
    snprintf(j->owner, sizeof(j->owner), "ann");
    snprintf(j->what.id, sizeof(j->what.id), "a");
    j->what.input = strdup("5");
    store_submit(s, j);
    is(s, "a", "ann", "12345");
    store_close(s);
    s = open_with(10, 100, 100);
    is(s, "a", "ann", "12345");
    store_close(s);
}

TEST_WITH(what_was_put_is_there_for_its_owner, setup, teardown)
{
    struct store *s = open_with(1 << 20, 100, 100);
    put(s, "a", "ann", "", STORED_ENDED, "1");
    is(s, "a", "ann", "1");
    is(s, "a", "bob", NULL);
    is(s, "a", "", NULL);
    put(s, "a", "ann", "", STORED_ENDED, "2");
    is(s, "a", "ann", "2");
    struct store_job j = ask(s, STORE_DELETE, "a", "bob");
    assert_int_equal(j.err.kind, ERR_NOT_FOUND);
    j = ask(s, STORE_DELETE, "a", "ann");
    assert_int_equal(j.err.kind, ERR_NONE);
    is(s, "a", "ann", NULL);
    is(s, "a'; DROP TABLE responses; --", "ann", NULL);
    put(s, "late", "ann", "", STORED_ENDED, "still in the queue");
    store_close(s);
    s = open_with(1 << 20, 100, 100);
    is(s, "late", "ann", "still in the queue");
    store_close(s);
}

TEST_WITH(a_chain_comes_oldest_first, setup, teardown)
{
    struct store *s = open_with(1 << 20, 3000, 100);
    put(s, "a", "", "", STORED_ENDED, "1");
    put(s, "b", "", "a", STORED_ENDED, "2");
    put(s, "c", "", "b", STORED_ENDED, "3");
    struct store_job j = ask(s, STORE_CHAIN, "c", "");
    assert_int_equal(j.n_found, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(j.found[i].response[0], '1' + (int)i);
    store_job_clear(&j);
    put(s, "theirs", "bob", "", STORED_ENDED, "x");
    put(s, "mixed", "", "theirs", STORED_ENDED, "x");
    j = ask(s, STORE_CHAIN, "mixed", "");
    assert_int_equal(j.err.kind, ERR_NOT_FOUND);
    store_job_clear(&j);
    put(s, "ring", "", "ring", STORED_ENDED, "x"); /* no such file is written by us */
    j = ask(s, STORE_CHAIN, "ring", "");
    assert_int_equal(j.err.kind, ERR_VALIDATION);
    store_job_clear(&j);
    store_close(s);
}

TEST_WITH(the_longest_unused_go_first, setup, teardown)
{
    char id[16], text[1001];
    memset(text, 'x', 1000);
    text[1000] = 0;
    struct store *s = open_with(10 * 1002, 5, 100);
    for (int i = 0; i < 8; i++) {
        snprintf(id, sizeof(id), "%d", i);
        put(s, id, "", "", STORED_ENDED, "x");
    }
    is(s, "2", "", NULL);
    is(s, "3", "", "x");
    store_close(s);
    s = open_with(3 * 1002, 100, 100);
    for (int i = 0; i < 8; i++) {
        snprintf(id, sizeof(id), "%d", i);
        put(s, id, "", "", STORED_ENDED, text);
    }
    is(s, "4", "", NULL);
    is(s, "5", "", text);
    is(s, "7", "", text);
    store_close(s);
    s = open_with(500, 100, 100);
    put(s, "large", "", "", STORED_ENDED, text);
    is(s, "large", "", NULL);
    put(s, "small", "", "", STORED_ENDED, "x");
    is(s, "small", "", "x");
    store_close(s);
}

TEST_WITH(what_is_old_is_not_there, setup, teardown)
{
    clock_is = 1000000;
    struct store *s = open_with(1 << 20, 100, 1);
    put(s, "a", "", "", STORED_ENDED, "1");
    is(s, "a", "", "1");
    clock_is += 2;
    is(s, "a", "", NULL);
    struct store_job j = ask(s, STORE_DELETE, "a", "");
    assert_int_equal(j.err.kind, ERR_NOT_FOUND);
    store_close(s);
}

/* New responses are not the first to go, and old ones end by the new clock. */
TEST_WITH(a_clock_that_is_set_back_changes_no_order, setup, teardown)
{
    clock_is = 1000000;
    struct store *s = open_with(1 << 20, 2, 100);
    put(s, "a", "", "", STORED_ENDED, "1");
    put(s, "b", "", "", STORED_ENDED, "2");
    is(s, "b", "", "2");
    clock_is -= 3600;
    put(s, "c", "", "", STORED_ENDED, "3");
    is(s, "c", "", "3");
    is(s, "b", "", "2");
    is(s, "a", "", NULL);
    clock_is += 101;
    is(s, "b", "", NULL);
    store_close(s);
}

TEST_WITH(what_ran_is_lost_with_its_process, setup, teardown)
{
    struct err e = ERR_INIT;
    struct store *s = open_with(1 << 20, 100, 100);
    put(s, "a", "", "", STORED_RUNNING, "1");
    put(s, "b", "", "", STORED_ENDED, "2");
    struct store_job j = ask(s, STORE_GET, "a", "");
    assert_int_equal(j.found[0].state, STORED_RUNNING);
    store_job_clear(&j);
    store_close(s);
    s = open_with(1 << 20, 100, 100);
    j = ask(s, STORE_GET, "a", "");
    assert_int_equal(j.found[0].state, STORED_LOST);
    store_job_clear(&j);
    j = ask(s, STORE_GET, "b", "");
    assert_int_equal(j.found[0].state, STORED_ENDED);
    store_job_clear(&j);
    store_close(s);
    assert_null(store_open(&(struct store_options){"/nowhere/at/all", 1, 1, 1}, &e));
    assert_non_null(strstr(e.msg, "/nowhere/at/all"));
}

static enum store_state state_of(struct store *s, const char *id)
{
    struct store_job j = ask(s, STORE_GET, id, "");
    assert_int_equal(j.err.kind, ERR_NONE);
    const enum store_state state = j.found[0].state;
    store_job_clear(&j);
    return state;
}

/* Files may not grow any more, as on a full disk: a running response is not running for ever. */
TEST_WITH(what_cannot_be_written_is_lost, setup, teardown)
{
    static char text[65536];
    struct rlimit all, few;
    memset(text, 'x', sizeof(text) - 1);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
    struct store *s = open_with(100 << 10, 100, 100);
    assert_int_equal(put_and_wait(s, "a", STORED_RUNNING, "1"), ERR_NONE);
    assert_int_equal(put_and_wait(s, "b", STORED_RUNNING, "1"), ERR_NONE);
    assert_int_equal(state_of(s, "a"), STORED_RUNNING);
    few = (struct rlimit){4096, all.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
    const enum err_kind more = put_and_wait(s, "c", STORED_RUNNING, text);
    const enum err_kind ended = put_and_wait(s, "a", STORED_ENDED, text);
    const enum store_state a = state_of(s, "a"), b = state_of(s, "b");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
    assert_int_equal(more, ERR_SYSTEM);
    assert_int_equal(ended, ERR_SYSTEM);
    assert_int_equal(a, STORED_LOST);
    assert_int_equal(b, STORED_RUNNING);
    is(s, "c", "", NULL);
    /* room again, but the answer is larger than the store */
    char *large = calloc(1, 200 << 10);
    memset(large, 'x', (200 << 10) - 1);
    assert_int_equal(put_and_wait(s, "b", STORED_ENDED, large), ERR_VALIDATION);
    assert_int_equal(state_of(s, "b"), STORED_LOST);
    free(large);
    store_close(s);
}

/* More than may wait for the disk. */
TEST_WITH(what_is_dropped_is_lost, setup, teardown)
{
    enum { BYTES = 65 << 20 };
    char *large = malloc(BYTES);
    memset(large, 'x', BYTES - 1);
    large[BYTES - 1] = 0;
    struct store *s = open_with((uint64_t)1 << 30, 1000, 100);
    put(s, "a", "", "", STORED_RUNNING, "1");
    assert_int_equal(put_and_wait(s, "a", STORED_ENDED, large), ERR_SYSTEM);
    free(large);
    assert_int_equal(state_of(s, "a"), STORED_LOST);
    store_close(s);
}

/* ------------------------------------------------------------------ bounds over a long time */

enum { IDS = 40, MOST = 12, MOST_BYTES = 4000 };

/* What should be there, the longest unused first. */
struct expected {
    int n, id[MOST + 1], bytes[MOST + 1], total;
};

static void forget(struct expected *x, int at)
{
    x->total -= x->bytes[at];
    x->n--;
    memmove(&x->id[at], &x->id[at + 1], sizeof(int) * (size_t)(x->n - at));
    memmove(&x->bytes[at], &x->bytes[at + 1], sizeof(int) * (size_t)(x->n - at));
}

static int place_of(const struct expected *x, int id)
{
    int at = 0;
    while (at < x->n && x->id[at] != id)
        at++;
    return at;
}

static void expect_put(struct expected *x, int id, int bytes)
{
    const int at = place_of(x, id);
    if (at < x->n)
        forget(x, at);
    x->id[x->n] = id;
    x->bytes[x->n++] = bytes;
    x->total += bytes;
    while (x->n > MOST || x->total > MOST_BYTES)
        forget(x, 0);
}

/* Were the store's counts wrong by one row or byte for long, it would keep too much or too little.
 */
TEST_WITH(bounds_hold_over_a_random_walk, setup, teardown)
{
    static char text[MOST_BYTES / 4 + 1];
    struct expected x = {0};
    char id[16];
    srand(7);
    struct store *s = open_with(MOST_BYTES, MOST, 1000);
    for (int i = 0; i < 1500; i++) {
        const int k = rand() % IDS, at = place_of(&x, k);
        snprintf(id, sizeof(id), "%d", k);
        if (rand() % 3 == 0) {
            struct store_job j = ask(s, STORE_DELETE, id, rand() % 4 ? "ann" : "bob");
            assert_int_equal(j.err.kind,
                             at < x.n && strcmp(j.owner, "ann") == 0 ? ERR_NONE : ERR_NOT_FOUND);
            if (j.err.kind == ERR_NONE)
                forget(&x, at);
        } else {
            const int n = 1 + rand() % (rand() % 2 ? MOST_BYTES / 4 : 20);
            memset(text, 'x', (size_t)n);
            text[n] = 0;
            put(s, id, "ann", "", STORED_ENDED, text);
            expect_put(&x, k, n + 2);
        }
        for (int c = 0; i % 25 == 0 && c < IDS; c++) {
            snprintf(id, sizeof(id), "%d", c);
            struct store_job j = ask(s, STORE_GET, id, "ann");
            assert_int_equal(j.err.kind, place_of(&x, c) < x.n ? ERR_NONE : ERR_NOT_FOUND);
            store_job_clear(&j);
        }
    }
    store_close(s);
}

static sqlite3 *opened;

static int note_opened(sqlite3 *db, const char **why, const struct sqlite3_api_routines *api)
{
    (void)why, (void)api;
    opened = db;
    return SQLITE_OK;
}

/* Rows that its statements have read one after the other, without an index. */
static int scanned(void)
{
    int n = 0;
    for (sqlite3_stmt *st = NULL; (st = sqlite3_next_stmt(opened, st));)
        n += sqlite3_stmt_status(st, SQLITE_STMTSTATUS_FULLSCAN_STEP, 0);
    return n;
}

/* A full store must not read itself for each response that it stores or deletes. */
TEST_WITH(a_full_store_is_not_read_for_each_response, setup, teardown)
{
    enum { FULL = 300, MORE = 100 };
    char id[16];
    assert_int_equal(sqlite3_auto_extension((void (*)(void))note_opened), SQLITE_OK);
    struct store *s = open_with(1 << 20, FULL, 1000);
    for (int i = 0; i < FULL + MORE; i++) {
        snprintf(id, sizeof(id), "%d", i);
        put(s, id, "", "", STORED_ENDED, "x");
    }
    is(s, "99", "", NULL);
    is(s, "100", "", "x");
    for (int i = FULL; i < FULL + MORE; i++) {
        snprintf(id, sizeof(id), "%d", i);
        struct store_job j = ask(s, STORE_DELETE, id, "");
        assert_int_equal(j.err.kind, ERR_NONE);
    }
    assert_in_range(scanned(), 0, FULL);
    sqlite3_reset_auto_extension();
    store_close(s);
}

int main(void) { return tests_run(NULL, NULL); }
