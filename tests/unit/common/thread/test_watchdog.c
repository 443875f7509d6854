/* A thread that stands still is reported once, with the stacks of all; a crash leaves its stack. */
#include "common/log/log.h"
#include "common/log/stacks.h"
#include "common/thread/watchdog.h"
#include "tests/unit/test.h"
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static _Atomic int64_t busy_ns, idle_ns;
static sem_t go_on;
static atomic_int n_states;

__attribute__((noinline)) static void stand_still_here(void)
{
    while (sem_wait(&go_on) != 0)
        ;
    __asm__ volatile("" ::: "memory"); /* no tail call: the frame is looked for */
}

static void *stand_still_twice(void *arg)
{
    (void)arg;
    for (int i = 0; i < 2; i++) {
        watch_busy(&busy_ns);
        stand_still_here();
        watch_idle(&busy_ns);
    }
    return NULL;
}

static void on_state(void *arg)
{
    assert_ptr_equal(arg, &n_states);
    atomic_fetch_add(&n_states, 1);
    LOG(LOG_ERROR, "the state", LOGI("n", atomic_load(&n_states)));
}

static uint32_t count(const char *text, const char *what)
{
    uint32_t n = 0;
    for (const char *p = text; (p = strstr(p, what)); p++)
        n++;
    return n;
}

/* Adds to `all` what is logged until `what` has come `n` times. */
static void read_log(int fd, char *all, size_t cap, const char *what, uint32_t n)
{
    size_t len = strlen(all);
    while (count(all, what) < n) {
        ssize_t got = read(fd, all + len, cap - 1 - len);
        assert_true(got > 0);
        all[len += (size_t)got] = 0;
    }
}

TEST(a_stall_is_reported_once_with_all_stacks)
{
    static char all[1 << 20];
    static const char us[] = "it writes this", of[] = "No progress of=\"the thread\"";
    struct err e = ERR_INIT;
    pthread_t t;
    int p[2];
    assert_int_equal(pipe(p), 0);
    log_init("test", LOG_INFO, false, p[1]);
    stacks_init();
    sem_init(&go_on, 0, 0);
    struct watchdog *w = watchdog_new(100, on_state, &n_states, &e);
    assert_non_null(w);
    watchdog_add(w, "another", &idle_ns);
    watchdog_add(w, "the thread", &busy_ns);
    assert_int_equal(watchdog_start(w, &e), 0);
    pthread_create(&t, NULL, stand_still_twice, NULL);
    read_log(p[0], all, sizeof(all), us, 1);
    sem_post(&go_on);
    read_log(p[0], all, sizeof(all), of, 2); /* the second stall is another one */
    sem_post(&go_on);
    pthread_join(t, NULL);
    watchdog_free(w);
    log_flush();
    LOG(LOG_INFO, "over");
    read_log(p[0], all, sizeof(all), "over\n", 1);

    assert_int_equal(count(all, of), 2);
    assert_int_equal(atomic_load(&n_states), 2);
    assert_non_null(strstr(all, "ERROR test: the state n=1"));
    assert_null(strstr(all, "another"));
    const char *frame = strstr(all, " stand_still_here+0x");
    assert_non_null(frame);
    assert_non_null(strstr(frame, " stand_still_twice+0x"));
    assert_non_null(strstr(all, " a_stall_is_reported_once_with_all_stacks+0x")); /* main's too */
    log_init("", LOG_INFO, false, STDERR_FILENO);
    close(p[0]), close(p[1]);
}

/* ---------------------------------------------------------------- what is stuck */

enum { LIMIT_MS = 200 };
static _Atomic int64_t stuck_ns;
static atomic_int ends;

static void on_end(void *arg)
{
    assert_ptr_equal(arg, &ends);
    atomic_fetch_add(&ends, 1);
}

static void pass_ms(int64_t ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static void compute_ms(int64_t ms)
{
    for (int64_t until = clock_ns() + ms * 1000000; clock_ns() < until;)
        ;
}

static struct watchdog *watch_stuck(void)
{
    struct err e = ERR_INIT;
    struct watchdog *w = watchdog_new(0, NULL, NULL, &e);
    assert_non_null(w);
    atomic_store(&ends, 0);
    watchdog_add(w, "the thread", &stuck_ns);
    watchdog_end_stuck(w, &stuck_ns, LIMIT_MS, on_end, &ends);
    assert_int_equal(watchdog_start(w, &e), 0);
    return w;
}

/* It ends once, and not while there is no work. */
TEST(what_stands_still_is_ended)
{
    watch_idle(&stuck_ns);
    struct watchdog *w = watch_stuck();
    pass_ms(3 * LIMIT_MS);
    assert_int_equal(atomic_load(&ends), 0);
    watch_busy(&stuck_ns);
    for (int i = 0; i < 500 && !atomic_load(&ends); i++)
        pass_ms(20);
    pass_ms(2 * LIMIT_MS);
    assert_int_equal(atomic_load(&ends), 1);
    watchdog_free(w);
}

/* Slow steps, one of them much slower than the limit, but not than the pace: nothing ends. */
TEST(the_limit_follows_the_pace)
{
    watch_busy(&stuck_ns);
    struct watchdog *w = watch_stuck();
    for (int i = 0; i < 4; i++) {
        pass_ms(LIMIT_MS / 2);
        watch_busy(&stuck_ns);
    }
    pass_ms(2 * LIMIT_MS);
    watch_busy(&stuck_ns);
    watchdog_free(w);
    assert_int_equal(atomic_load(&ends), 0);
}

TEST(what_computes_has_longer)
{
    watch_busy(&stuck_ns);
    struct watchdog *w = watch_stuck();
    compute_ms(4 * LIMIT_MS);
    watchdog_free(w);
    assert_int_equal(atomic_load(&ends), 0);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
TEST(a_crash_leaves_its_stack_and_the_log)
{
    TEST_SKIPPED(1, "sanitizers describe crashes themselves");
}
TEST(a_file_that_was_shortened_is_named)
{
    TEST_SKIPPED(1, "sanitizers describe crashes themselves");
}
#else
__attribute__((noinline)) static void fall_over_here(void) { abort(); }

/* What a process writes that does this; its signal in *sig. */
static const char *last_words(void (*act)(void), int *sig)
{
    static char all[1 << 16];
    int p[2], status;
    assert_int_equal(pipe(p), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(p[1], STDERR_FILENO);
        log_init("test", LOG_INFO, true, p[1]);
        stacks_init();
        LOG(LOG_INFO, "said before");
        act();
    }
    close(p[1]);
    size_t n = 0;
    for (ssize_t got; (got = read(p[0], all + n, sizeof(all) - 1 - n)) > 0;)
        n += (size_t)got;
    all[n] = '\0';
    assert_int_equal(waitpid(pid, &status, 0), pid);
    *sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    close(p[0]);
    const char *before = strstr(all, "said before");
    assert_non_null(before);
    return before;
}

TEST(a_crash_leaves_its_stack_and_the_log)
{
    int sig;
    const char *said = last_words(fall_over_here, &sig);
    assert_int_equal(sig, SIGABRT);
    assert_non_null(strstr(said, "ends the process by signal 6"));
    assert_non_null(strstr(said, " fall_over_here+0x"));
}

static int mapped_fd;

static void read_behind_the_end(void)
{
    enum { SIZE = 1 << 16 };
    if (ftruncate(mapped_fd, SIZE) != 0)
        _exit(1);
    const volatile char *at = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, mapped_fd, 0);
    if (at != MAP_FAILED && ftruncate(mapped_fd, 0) == 0)
        _exit(at[SIZE - 1]);
}

TEST(a_file_that_was_shortened_is_named)
{
    char name[] = "/tmp/mapped weights XXXXXX", want[128];
    int sig;
    assert_true((mapped_fd = mkstemp(name)) >= 0);
    const char *said = last_words(read_behind_the_end, &sig);
    assert_int_equal(sig, SIGBUS);
    snprintf(want, sizeof(want), "a mapped file was shortened or cannot be read: %s", name);
    assert_non_null(strstr(said, want));
    close(mapped_fd);
    unlink(name);
}
#endif

int main(void) { return tests_run(NULL, NULL); }
