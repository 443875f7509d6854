/* Who may speak to the edge and for how long: keys, slow and half requests, the end of the server.
 */
#include "router/http/keys.h"
#include "tests/unit/router/edge_rig.h"
#include <dirent.h>

#define JSON "Content-Type: application/json\r\n"

TEST(keys_are_compared_exactly)
{
    static struct rig locked;
    struct keys known;
    struct err e;
    assert_int_equal(keys_load(&known, "other,Secret", NULL, &e), 0);
    struct http_config c = {.keys = &known};
    rig_start(&locked, &c, 300);
    static const struct {
        const char *header;
        int status;
    } keys[] = {{"Authorization: Bearer Secret\r\n", 422},
                {"Authorization: bearer Secret\r\n", 422},
                {"Authorization: Bearer secret\r\n", 401},
                {"Authorization: Bearer SecretSecret\r\n", 401},
                {"Authorization: Bearer \r\n", 401},
                {"Authorization: Basic Secret\r\n", 401},
                {"Authorization: Bearer other\r\n", 422},
                {"Authorization: Bearer other,Secret\r\n", 401},
                {"x-api-key: Secret\r\n", 422},
                {"x-api-key: secret\r\n", 401},
                {"", 401}};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        char *req = text("POST /generate HTTP/1.1\r\nHost: x\r\n" JSON
                         "%sConnection: close\r\nContent-Length: 2\r\n\r\n{}",
                         keys[i].header);
        assert_int_equal(status_of(ask_raw(&locked, req, &b)), keys[i].status);
        free(req);
    }
    rig_settle(&locked);
    rig_stop(&locked);
    keys_free(&known);
}

/* Without a key, on every path: 401 unless the route is open. */
static void expect_locked(bool keys_for_all)
{
    static struct rig locked;
    struct keys known;
    struct err e;
    assert_int_equal(keys_load(&known, "Secret", NULL, &e), 0);
    struct http_config c = {.keys = &known, .keys_for_all = keys_for_all};
    rig_start(&locked, &c, 300);
    for (unsigned i = 0; i < n_routes; i++)
        for (unsigned k = 0; k < ROUTE_PATHS && routes[i]->paths[k]; k++) {
            const bool open = routes[i]->access == ACCESS_PROBE ||
                              (routes[i]->access == ACCESS_DESCRIBES && !keys_for_all);
            char *req = text("%s %s HTTP/1.1\r\nHost: x\r\n" JSON
                             "Connection: close\r\nContent-Length: 2\r\n\r\n{}",
                             routes[i]->method, routes[i]->paths[k]);
            int status = status_of(ask_raw(&locked, req, &b));
            if (open ? status == 401 : status != 401)
                fail_msg("%s gave %d without a key", routes[i]->paths[k], status);
            free(req);
        }
    rig_settle(&locked);
    rig_stop(&locked);
    keys_free(&known);
}

TEST(every_route_needs_a_key_but_probes_and_descriptions) { expect_locked(false); }

TEST(every_route_needs_a_key_but_probes_where_that_is_set)
{
    expect_locked(true);
    for (unsigned i = 0; i < n_routes; i++)
        if (routes[i]->access == ACCESS_PROBE)
            assert_non_null(strstr("/livez /health /startupz", routes[i]->paths[0]));
}

TEST(dawdlers_are_closed)
{
    static struct rig strict;
    struct http_config c = {.header_timeout_ms = 1000, .body_timeout_ms = 1000};
    rig_start(&strict, &c, 300);
    int head = dial(&strict), body = dial(&strict);
    const char *start = "POST /generate HTTP/1.1\r\nHost: x\r\n" JSON "Content-Length: 50\r\n\r\n{";
    say(body, start, strlen(start));
    int64_t t = clock_ms();
    for (int i = 0; i < 30; i++) { /* a byte now and then does not help */
        usleep(100000);
        if (send(head, "G", 1, MSG_NOSIGNAL) <= 0)
            break;
        send(body, " ", 1, MSG_NOSIGNAL);
    }
    receive(head, &b);
    receive(body, &b);
    assert_true(clock_ms() - t < 15000);
    close(head);
    close(body);
    rig_stop(&strict);
}

static int open_files(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* Clients that hang up anywhere in a request, also with their end in the same packet as the bytes.
 */
TEST(half_requests_leave_no_sockets)
{
    char *req = post_text("/generate", "{\"inputs\":\"x\",\"parameters\":{\"max_new_tokens\":5}}");
    size_t n = strlen(req);
    int before = open_files();
    for (size_t i = 0; i < 600; i++) {
        int fd = dial(&rig);
        say(fd, req, n * (i % 40 + 1) / 40);
        if (i % 3 == 0)
            usleep(1000);
        close(fd);
    }
    for (int i = 0; i < 400 && open_files() > before; i++)
        usleep(50000);
    assert_true(open_files() <= before);
    free(req);
}

TEST(stopping_cuts_what_is_open)
{
    static struct rig r;
    rig_start(&r, NULL, 300);
    char *stream = post_text("/generate_stream",
                             "{\"inputs\":\"x\",\"parameters\":{\"max_new_tokens\":3900}}");
    char *plain =
        post_text("/generate", "{\"inputs\":\"x\",\"parameters\":{\"max_new_tokens\":3900}}");
    int a = dial(&r), c = dial(&r);
    say(a, stream, strlen(stream));
    say(c, plain, strlen(plain));
    wait_for(&r.fleet.submitted, 2);
    rig_stop(&r);
    assert_int_equal(r.fleet.cancels, 2);
    receive(a, &b);
    receive(c, &b);
    close(a);
    close(c);
    free(stream);
    free(plain);
}

int main(void)
{
    log_init("test", LOG_OFF, false, STDERR_FILENO);
    return tests_run(edge_up, edge_down);
}
