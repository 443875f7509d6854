/* A log that is not read: no thread waits for it, what is missing is counted and said. */
#include "common/clock.h"
#include "common/log/log.h"
#include "common/log/sink.h"
#include "tests/unit/test.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINES = 20000, THREADS = 4 };

static void *write_lines(void *arg)
{
    char text[200];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    for (int i = 0; i < LINES; i++)
        LOG(LOG_INFO, text, LOGI("line", i), LOGI("thread", *(int *)arg));
    return NULL;
}

/* What comes out of `fd` until `last` has come, as lines. */
static char *read_until(int fd, const char *last)
{
    size_t n = 0, cap = 64 << 20;
    char *all = malloc(cap);
    assert_non_null(all);
    for (all[0] = 0; !strstr(n > 4000 ? all + n - 4000 : all, last);) {
        ssize_t got = read(fd, all + n, cap - 1 - n);
        assert_true(got > 0);
        all[n += (size_t)got] = 0;
    }
    return all;
}

/* A process of its own: exit() is part of the test. */
static void run_child(int out, bool unread)
{
    log_init("test", LOG_INFO, false, out);
    if (unread)
        for (int i = 0; i < 3000; i++)
            log_msg(LOG_INFO, "line %d of many, which is long enough to fill a pipe with", i);
    log_msg(LOG_INFO, "the last words");
    exit(0);
}

TEST(the_last_lines_are_flushed_at_exit_if_somebody_reads)
{
    int p[2], status;
    assert_int_equal(pipe(p), 0);
    pid_t pid = fork();
    if (pid == 0)
        run_child(p[1], true);
    close(p[1]);
    char *all = read_until(p[0], "the last words\n");
    assert_non_null(strstr(all, "line 2999 of many"));
    assert_null(strstr(all, "dropped"));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    free(all);
    close(p[0]);
}

TEST(exit_does_not_wait_for_ever)
{
    int p[2], status;
    assert_int_equal(pipe(p), 0);
    int64_t start = clock_ms();
    pid_t pid = fork();
    if (pid == 0)
        run_child(p[1], true);
    assert_int_equal(waitpid(pid, &status, 0), pid); /* p[0] is not read */
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_true(clock_ms() - start >= LOG_READER_MS);
    close(p[0]), close(p[1]);
}

/* ---------------------------------------------------------------- with a writer: no fork below */

static char *contents(int fd)
{
    const off_t n = lseek(fd, 0, SEEK_END);
    char *all = calloc(1, (size_t)n + 1);
    assert_true(n > 0 && all);
    assert_int_equal(pread(fd, all, (size_t)n, 0), n);
    return all;
}

/* A limit of the file's size cuts a line, as a disk without space does. */
TEST(a_full_disk_loses_whole_lines_and_says_how_many)
{
    enum { FULL = 1000, TRIED = 40 };
    char name[] = "/tmp/test_log_sink.XXXXXX", text[100];
    const int fd = mkstemp(name);
    struct rlimit before, less;
    const uint64_t was = log_dropped();
    assert_true(fd >= 0 && unlink(name) == 0);
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = 0;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    less = before;
    less.rlim_cur = FULL;
    signal(SIGXFSZ, SIG_IGN);
    log_init("test", LOG_INFO, false, fd);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &less), 0);
    for (int i = 0; i < TRIED; i++)
        LOG(LOG_INFO, text, LOGI("line", i), LOGS("end", "."));
    assert_true(log_flush());
    const uint64_t dropped = log_dropped() - was;
    assert_in_range(dropped, TRIED - FULL / 100, TRIED - 1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    LOG(LOG_INFO, "the last line");
    assert_true(log_flush());
    assert_int_equal(log_dropped() - was, dropped);

    char *all = contents(fd), *save = NULL;
    uint64_t whole = 0, cut = 0, said = 0, last = 0;
    for (char *l = strtok_r(all, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        const char *missing = strstr(l, "Log lines were dropped");
        whole += strstr(l, "xxx") && strstr(l, " end=.");
        cut += strstr(l, "xxx") && !strstr(l, " end=.");
        said += missing ? strtoull(strrchr(l, '=') + 1, NULL, 10) : 0;
        last += strstr(l, " INFO test: the last line") != NULL;
        if (missing || strstr(l, "the last line"))
            assert_null(strstr(l, "xxx"));
    }
    assert_int_equal(whole + dropped, TRIED);
    assert_int_equal(said, dropped);
    assert_int_equal(last, 1);
    assert_in_range(cut, 0, 1);
    free(all);
    log_init("", LOG_INFO, false, STDERR_FILENO);
    close(fd);
}

TEST(nobody_waits_for_a_log_that_is_not_read)
{
    int p[2], id[THREADS];
    pthread_t t[THREADS];
    assert_int_equal(pipe(p), 0);
    log_init("test", LOG_INFO, false, p[1]);
    uint64_t before = log_dropped();
    for (int i = 0; i < THREADS; i++)
        id[i] = i, pthread_create(&t[i], NULL, write_lines, &id[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL); /* hangs where writes block */
    uint64_t dropped = log_dropped() - before;
    assert_in_range(dropped, 1, THREADS * LINES);
    LOG(LOG_INFO, "the last line");

    char *all = read_until(p[0], "the last line\n"), *save = NULL;
    uint64_t lines = 0, said = 0, first_said = 0;
    for (char *l = strtok_r(all, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        const char *missing =
            strstr(l, "Log lines were dropped: they could not be written in time lines=");
        if (missing) {
            said += strtoull(strrchr(missing, '=') + 1, NULL, 10);
            first_said = first_said ? first_said : lines + 1;
        } else if (strstr(l, "xxx")) {
            assert_non_null(strstr(l, " INFO test: xxx")); /* whole from its beginning */
            assert_non_null(strstr(l, " thread="));
            lines++;
        }
    }
    dropped = log_dropped() - before;
    assert_int_equal(said, dropped);
    assert_int_equal(lines + dropped, THREADS * LINES); /* each line is there or counted */
    assert_in_range(first_said, 1, lines);              /* said where they are missing */
    free(all);
    assert_true(log_flush());
    log_init("", LOG_INFO, false, STDERR_FILENO);
    close(p[0]), close(p[1]);
}

TEST(lines_without_heap_have_the_form_of_the_others)
{
    char line[256], longer[1000];
    log_init("test", LOG_INFO, true, STDERR_FILENO);
    size_t n = log_line(line, sizeof(line), LOG_ERROR, "#0 a \"b\"\n");
    assert_int_equal(n, strlen(line));
    assert_non_null(strstr(line, "\"level\":\"ERROR\",\"fields\":{\"message\":\"#0 a ?b??\"},"
                                 "\"target\":\"test\"}\n"));
    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = 0;
    n = log_line(line, sizeof(line), LOG_WARN, longer);
    assert_true(n < sizeof(line) && n == strlen(line));
    assert_non_null(strstr(line, "xxx\"},\"target\":\"test\"}\n")); /* cut, and still JSON */
    log_init("test", LOG_INFO, false, STDERR_FILENO);
    log_line(line, sizeof(line), LOG_WARN, "text");
    assert_non_null(strstr(line, "Z  WARN test: text\n"));
    log_init("", LOG_INFO, false, STDERR_FILENO);
}

int main(void) { return tests_run(NULL, NULL); }
