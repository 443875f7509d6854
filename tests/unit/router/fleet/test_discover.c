/* Where replicas are, by a file's lines and by a name. */
#include "router/fleet/discover.h"
#include "tests/unit/test.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct targets t;

TEST(forms_are_checked)
{
    static const char *const good[] = {"dns:replicas.default.svc:8000", "file:/etc/replicas",
                                       "dns:localhost:1"};
    static const char *const bad[] = {"",          "dns:",       "file:",       "dns:name",
                                      "dns:name:", "dns:name:0", "dns:n:65536", "dns::80",
                                      "/a/file",   "dns:a/b:80", "http:x:80",   "dns:name:8o"};
    struct err e = ERR_INIT;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_int_equal(discover_check(good[i], &e), 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(discover_check(bad[i], &e), -1);
}

TEST(lines_are_addresses)
{
    static const char text[] = "# two of ours\n"
                               "tcp://127.0.0.1:8000\n"
                               "  127.0.0.1:8001 # the second\r\n"
                               "\n"
                               "unix:/run/shard-0\n"
                               "/run/other-0\n"
                               "[::1]:9\n"
                               "127.0.0.1:8000"; /* once is enough */
    struct err e = ERR_INIT;
    assert_int_equal(discover_lines(text, strlen(text), CLUSTER_OPEN, &t, &e), 0);
    assert_int_equal(t.n, 5);
    assert_string_equal(t.v[0], "tcp://127.0.0.1:8000");
    assert_string_equal(t.v[1], "tcp://127.0.0.1:8001");
    assert_string_equal(t.v[2], "unix:/run/shard-0");
    assert_string_equal(t.v[3], "unix:/run/other-0");
    assert_string_equal(t.v[4], "tcp://[::1]:9");
}

TEST(what_is_no_address_is_left_out)
{
    static char text[9000];
    struct err e = ERR_INIT;
    int n;
    n = snprintf(text, sizeof(text), "no port\n127.0.0.1:80\n10.1.2.3:80\n");
    assert_int_equal(discover_lines(text, (size_t)n, CLUSTER_OPEN, &t, &e), 1);
    assert_int_equal(t.n, 1); /* the other one leaves the machine without proof */
    assert_int_equal(discover_lines(text, (size_t)n, CLUSTER_SECRET, &t, &e), 1);
    assert_int_equal(t.n, 2);
    memset(text, 'x', 4000);
    memcpy(text + 4000, ":80\n127.0.0.1:81", 17);
    assert_int_equal(discover_lines(text, 4016, CLUSTER_OPEN, &t, &e), 1);
    assert_int_equal(t.n, 1);
    n = 0;
    for (int i = 0; i < TARGETS_MOST + 3; i++)
        n += snprintf(text + n, sizeof(text) - (size_t)n, "127.0.0.1:%d\n", 1000 + i);
    assert_int_equal(discover_lines(text, (size_t)n, CLUSTER_OPEN, &t, &e), 1);
    assert_int_equal(t.n, TARGETS_MOST);
    assert_int_equal(discover_lines("\n#\n", 3, CLUSTER_OPEN, &t, &e), 0);
    assert_int_equal(t.n, 0);
}

TEST(files_and_names_are_looked_up)
{
    char path[] = "/tmp/discover-XXXXXX", where[64];
    struct err e = ERR_INIT;
    int fd = mkstemp(path);
    assert_int_equal(write(fd, "127.0.0.1:5\n", 12), 12);
    close(fd);
    snprintf(where, sizeof(where), "file:%s", path);
    assert_int_equal(discover(where, CLUSTER_OPEN, &t, &e), 0);
    assert_int_equal(t.n, 1);
    unlink(path);
    assert_int_equal(discover(where, CLUSTER_OPEN, &t, &e), -1);
    assert_int_equal(discover("dns:localhost:77", CLUSTER_OPEN, &t, &e), 0);
    assert_true(t.n >= 1);
    assert_non_null(strstr(t.v[0], ":77"));
    assert_int_equal(discover("dns:no-such-name.invalid:77", CLUSTER_OPEN, &t, &e), -1);
}

static void look(struct sightings *s, const char *lines)
{
    struct err e = ERR_INIT;
    assert_int_equal(discover_lines(lines, strlen(lines), CLUSTER_OPEN, &t, &e), 0);
    sightings_add(s, &t);
}

TEST(one_look_changes_nothing)
{
    static struct sightings s;
    static const char a[] = "tcp://127.0.0.1:1", b[] = "tcp://127.0.0.1:2";
    assert_true(sightings_deny(&s, a));
    look(&s, "127.0.0.1:1\n"); /* the first look-up counts alone: nothing is known yet */
    assert_true(sightings_confirm(&s, a));
    look(&s, ""); /* the file is being written */
    assert_false(sightings_deny(&s, a) || sightings_confirm(&s, a));
    look(&s, "127.0.0.1:1\n127.0.0.1:2");
    assert_false(sightings_deny(&s, a) || sightings_confirm(&s, b));
    look(&s, "127.0.0.1:1\n127.0.0.1:22\n"); /* the line before was half of one */
    assert_true(sightings_confirm(&s, a));
    assert_false(sightings_confirm(&s, b));
    look(&s, "127.0.0.1:22\n");
    look(&s, "127.0.0.1:22\n");
    assert_true(sightings_deny(&s, a) && sightings_deny(&s, b));
}

int main(void) { return tests_run(NULL, NULL); }
