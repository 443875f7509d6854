/* What a service manager is told, over a real socket. */
#include "launcher/notify.h"
#include "tests/unit/test.h"
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct manager {
    char name[64], entry[96], watchdog[64], pid[64];
    char *env[4];
    int fd;
    struct notify n;
    char got[256];
};

static void listens(struct manager *m, bool abstract)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(m->name, sizeof(m->name), "%s/tmp/test-notify-%ld", abstract ? "@" : "",
             (long)getpid());
    snprintf(m->entry, sizeof(m->entry), "NOTIFY_SOCKET=%s", m->name);
    const size_t len = strlen(m->name);
    memcpy(a.sun_path, m->name, len);
    a.sun_path[0] = abstract ? 0 : '/';
    unlink(m->name);
    m->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    socklen_t n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + !abstract);
    assert_int_equal(bind(m->fd, (struct sockaddr *)&a, n), 0);
    m->env[0] = m->entry;
}

/* "": nothing was sent */
static const char *got(struct manager *m)
{
    ssize_t n = recv(m->fd, m->got, sizeof(m->got) - 1, 0);
    m->got[n > 0 ? n : 0] = 0;
    return m->got;
}

static void end(struct manager *m)
{
    notify_free(&m->n);
    close(m->fd);
    if (m->name[0] == '/')
        unlink(m->name);
}

TEST(test_each_state_is_told_once)
{
    static const char loading[] = "loading", serving[] = "serving", stop[] = "stop";
    for (int abstract = 0; abstract < 2; abstract++) {
        struct manager m = {0};
        listens(&m, abstract);
        notify_init(&m.n, m.env);
        notify_turn(&m.n, false, false, loading, 0);
        assert_string_equal(got(&m), "STATUS=loading");
        notify_turn(&m.n, false, false, loading, 1);
        assert_string_equal(got(&m), "");
        notify_turn(&m.n, true, false, serving, 2);
        assert_string_equal(got(&m), "READY=1\nSTATUS=serving");
        notify_turn(&m.n, false, false, loading, 3); /* the shards are started again */
        assert_string_equal(got(&m), "STATUS=loading");
        notify_turn(&m.n, true, false, serving, 4);
        assert_string_equal(got(&m), "STATUS=serving");
        notify_turn(&m.n, false, true, stop, 5);
        assert_string_equal(got(&m), "STOPPING=1\nSTATUS=stop");
        notify_turn(&m.n, false, true, stop, 6);
        assert_string_equal(got(&m), "");
        end(&m);
    }
}

static void watchdog(struct manager *m, const char *usec, long pid)
{
    snprintf(m->watchdog, sizeof(m->watchdog), "WATCHDOG_USEC=%s", usec);
    snprintf(m->pid, sizeof(m->pid), "WATCHDOG_PID=%ld", pid);
    m->env[1] = m->watchdog;
    m->env[2] = pid ? m->pid : NULL;
    notify_init(&m->n, m->env);
    m->n.status = "";
}

TEST(test_the_watchdog_is_told_twice_in_its_time)
{
    struct manager m = {0};
    listens(&m, false);
    watchdog(&m, "4000000", (long)getpid());
    int told = 0;
    for (int64_t now = 100000; now < 120000; now += 250) {
        notify_turn(&m.n, false, false, m.n.status, now);
        told += !strcmp(got(&m), "WATCHDOG=1");
    }
    assert_int_equal(told, 10);
    end(&m);

    static const struct {
        const char *usec;
        long pid;
    } none[] = {{"4000000", 1}, {"0", 0}, {"-5", 0}, {"soon", 0}};
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        listens(&m, false);
        watchdog(&m, none[i].usec, none[i].pid);
        notify_turn(&m.n, false, false, m.n.status, 1 << 20);
        assert_string_equal(got(&m), "");
        end(&m);
    }
}

TEST(test_what_was_not_taken_is_sent_again)
{
    struct manager m = {0};
    listens(&m, false);
    unlink(m.name);
    notify_init(&m.n, m.env);
    notify_turn(&m.n, true, false, "serving", 0); /* the socket is not there */
    close(m.fd);
    listens(&m, false);
    notify_turn(&m.n, true, false, "serving", 1);
    assert_string_equal(got(&m), "READY=1\nSTATUS=serving");
    end(&m);
}

/* The launcher sleeps until `due`: an attempt that failed is not repeated without a pause. */
TEST(test_a_manager_that_is_away_is_tried_after_a_pause)
{
    struct manager m = {0};
    listens(&m, false);
    watchdog(&m, "4000000", (long)getpid());
    unlink(m.name);
    notify_turn(&m.n, false, false, m.n.status, 100000);
    assert_true(m.n.due > 100000 && m.n.due < 101000);
    close(m.fd);
    listens(&m, false);
    notify_turn(&m.n, false, false, m.n.status, m.n.due);
    assert_string_equal(got(&m), "WATCHDOG=1");
    end(&m);
}

TEST(test_without_an_address_nothing_is_sent)
{
    char too_long[200] = "NOTIFY_SOCKET=/";
    memset(too_long + 15, 'x', 150);
    char *const wrong[] = {"NOTIFY_SOCKET=", "NOTIFY_SOCKET=run/x", "NOTIFY_SOCKET=/", too_long,
                           "NOTIFY_SOCKETS=/tmp/x"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct notify n;
        char *env[] = {wrong[i], NULL};
        notify_init(&n, env);
        assert_int_equal(n.fd, -1);
        notify_turn(&n, true, false, "serving", 0);
        assert_false(n.ready);
        notify_free(&n);
    }
}

int main(void) { return tests_run(NULL, NULL); }
