/* What a child inherits from the launcher, and what it does not. */
#include "launcher/process/spawn.h"
#include "tests/unit/test.h"
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int sent; /* to each child, before it has a process group of its own */

static void in_child(void)
{
    if (sent)
        kill(getpid(), sent);
}

/* The wait status of `sh -c script`, whose output goes to `said`. */
static int run(const char *script, char *said, size_t max)
{
    struct err e = ERR_INIT;
    struct spawned s;
    int status;
    char *argv[] = {"sh", "-c", (char *)(uintptr_t)script, NULL}, *env[] = {NULL};
    if (spawn("/bin/sh", argv, env, (const int[3]){0, 0, 0}, NULL, &s, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(waitpid(s.pid, &status, 0), s.pid);
    ssize_t n = read(s.out, said, max - 1);
    said[n > 0 ? n : 0] = '\0';
    close(s.out);
    close(s.err);
    return status;
}

/* Control-C reaches all of the terminal's group, which a child is in until it has its own. The
 * launcher blocks these signals, and a child begins with its mask. */
TEST(a_signal_before_a_child_has_its_group_does_not_end_it)
{
    char said[64];
    sigset_t all, was;
    const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP};
    sigemptyset(&all);
    for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++)
        sigaddset(&all, signals[i]);
    pthread_sigmask(SIG_BLOCK, &all, &was);
    for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++) {
        sent = signals[i];
        assert_int_equal(run("echo it runs", said, sizeof(said)), 0);
        assert_string_equal(said, "it runs\n");
    }
    sent = 0;
    pthread_sigmask(SIG_SETMASK, &was, NULL);
}

/* As under nohup. */
TEST(what_is_ignored_stays_ignored_and_the_rest_ends_a_child)
{
    char said[64];
    void (*was)(int) = signal(SIGHUP, SIG_IGN);
    assert_int_equal(run("kill -HUP $$; echo on", said, sizeof(said)), 0);
    assert_string_equal(said, "on\n");
    signal(SIGHUP, was);
    const int status = run("kill -INT $$; echo on", said, sizeof(said));
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
    assert_string_equal(said, "");
}

int main(void)
{
    pthread_atfork(NULL, NULL, in_child);
    return tests_run(NULL, NULL);
}
