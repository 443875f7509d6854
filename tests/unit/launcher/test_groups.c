/* Groups of shards with processes in their place: this program plays all of them. */
#include "common/process/process.h"
#include "launcher/groups.h"
#include "tests/unit/test.h"
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MODELS = 1, CHILDREN = 2 }; /* a shard and its probe */

struct launch {
    struct config cfg;
    struct arena arena;
    struct plan plan;
    struct groups groups;
    struct child children[CHILDREN];
    struct err e;
    char folder[64];
};

extern char **environ;

/* Beside a link `model-server` to this program. */
static void begin(struct launch *l)
{
    static char *argv[] = {"launcher", "--model-id", "m", "--models-folder", "/nowhere", NULL};
    char link[96], prefix[96];
    *l = (struct launch){.e = ERR_INIT, .folder = "/tmp/test-groups-XXXXXX"};
    assert_non_null(mkdtemp(l->folder));
    snprintf(link, sizeof(link), "%s/model-server", l->folder);
    snprintf(prefix, sizeof(prefix), "%s/s", l->folder);
    assert_int_equal(symlink("/proc/self/exe", link), 0);
    setenv("LAUNCHER_BIN_DIR", l->folder, 1);
    setenv("SHARD_UDS_PATH", prefix, 1);
    arena_init(&l->arena, 1 << 20);
    assert_int_equal(flags_parse(&launcher_flags, &l->cfg, 5, argv, environ, &l->e), 0);
    assert_int_equal(flags_check(&l->cfg, -1, &l->e), 0);
    assert_int_equal(plan_init(&l->plan, &l->cfg, "g", environ, &l->arena, 1, &l->e), 0);
    assert_int_equal(groups_init(&l->groups, &l->plan, MODELS, 0, l->children, &l->e), 0);
}

static void end(struct launch *l)
{
    char link[96];
    for (int i = 0; i < CHILDREN; i++)
        child_free(&l->children[i]);
    groups_free(&l->groups);
    flags_free(&launcher_flags, &l->cfg);
    arena_reset(&l->arena);
    snprintf(link, sizeof(link), "%s/model-server", l->folder);
    unlink(link);
    assert_int_equal(rmdir(l->folder), 0);
}

/* The router's message. */
static void ask(struct launch *l, const char *text)
{
    assert_int_equal(send(l->groups.router_fd, text, strlen(text), 0), strlen(text));
    groups_read(&l->groups);
}

/* The router's next message; "": there is none. */
static const char *told(struct launch *l)
{
    static char text[512];
    const ssize_t n = recv(l->groups.router_fd, text, sizeof(text) - 1, MSG_DONTWAIT);
    text[n > 0 ? n : 0] = 0;
    return text;
}

/* Waits for the end of a child, and reports it. */
static void lose(struct launch *l, uint32_t i)
{
    int status;
    assert_int_equal(waitpid(l->children[i].pid, &status, 0), l->children[i].pid);
    child_ended(&l->children[i], status);
    groups_lost(&l->groups, i);
}

TEST(test_a_killed_shard_is_started_again)
{
    struct launch l;
    begin(&l);
    ask(&l, "load 0 m");
    assert_true(l.children[0].alive && l.children[1].alive);
    child_signal(&l.children[0], SIGKILL);
    lose(&l, 0);
    assert_false(l.children[0].alive); /* the probe is still there */
    lose(&l, 1);
    assert_true(l.children[0].alive && l.children[1].alive);
    ask(&l, "unload 0 ");
    lose(&l, 0);
    lose(&l, 1);
    assert_string_equal(told(&l), "gone 0 ");
    end(&l);
}

TEST(test_at_the_end_of_the_launch_it_is_not)
{
    struct launch l;
    begin(&l);
    ask(&l, "load 0 m");
    child_signal(&l.children[0], SIGKILL);
    lose(&l, 0);
    groups_end(&l.groups); /* between the two ends */
    lose(&l, 1);
    assert_false(l.children[0].alive || l.children[1].alive);
    assert_string_equal(told(&l), "gone 0 ");
    end(&l);
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1) { /* a shard or a probe */
        pause();
        return 1;
    }
    process_begin();
    return tests_run(NULL, NULL);
}
