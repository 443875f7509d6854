/* HTTP requests by route: classes of status, durations, and what is not counted. */
#include "router/http/traffic.h"
#include "tests/unit/test.h"
#include <string.h>

TEST(requests_are_counted_by_route_and_class)
{
    char allow[64];
    struct buf out = BUF_INIT;
    struct traffic *t = traffic_new();
    const struct route *chat = route_find("POST", "/v1/chat/completions", allow);
    const struct route *probe = route_find("GET", "/health", allow);
    assert_non_null(t);
    assert_non_null(chat);
    assert_true(probe && probe->probe);
    traffic_note(t, chat, 200, 100000000); /* a bound is inclusive */
    traffic_note(t, chat, 201, 100000001);
    traffic_note(t, chat, 499, 0);
    traffic_note(t, chat, 0, 400000000000); /* no status was sent */
    traffic_note(t, probe, 200, 1);
    traffic_note(t, NULL, 404, 1);
    traffic_print(t, &out);
    static const char *const lines[] = {
        "http_requests_total{handler=\"/v1/chat/completions\",method=\"POST\",status=\"2xx\"} 2\n",
        "http_requests_total{handler=\"/v1/chat/completions\",method=\"POST\",status=\"4xx\"} 2\n",
        "http_requests_total{handler=\"none\",method=\"none\",status=\"4xx\"} 1\n",
        "{handler=\"/v1/chat/completions\",method=\"POST\",le=\"0.1\"} 2\n",
        "{handler=\"/v1/chat/completions\",method=\"POST\",le=\"0.5\"} 3\n",
        "{handler=\"/v1/chat/completions\",method=\"POST\",le=\"300\"} 3\n",
        "{handler=\"/v1/chat/completions\",method=\"POST\",le=\"+Inf\"} 4\n",
        "_sum{handler=\"/v1/chat/completions\",method=\"POST\"} 400.2\n",
        "_count{handler=\"/v1/chat/completions\",method=\"POST\"} 4\n",
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        if (!strstr(out.p, lines[i]))
            fail_msg("%s is not in\n%s", lines[i], out.p);
    assert_null(strstr(out.p, "/health"));
    buf_free(&out);
    traffic_free(t);
}

TEST(an_unknown_path_is_near_to_a_route)
{
    static const struct {
        const char *path, *near;
    } cases[] = {
        {"/v1/chat/completion", "/v1/chat/completions"},
        {"/v1/v1/chat/completions", "/v1/chat/completions"},
        {"/v1/chat/completions/", "/v1/chat/completions"},
        {"/proxy/llm/v1/messages", "/v1/messages"},
        {"/genrate", "/generate"},
        {"/metric", "/metrics"},
        {"/v1", NULL},
        {"/", NULL},
        {"/wp-login.php", NULL},
        {"/v1/moderations", NULL}, /* four letters from conversations */
        {"", NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const char *near = route_near(cases[i].path);
        if (!near != !cases[i].near || (near && strcmp(near, cases[i].near) != 0))
            fail_msg("%s: %s", cases[i].path, near ? near : "nothing");
    }
}

int main(void) { return tests_run(NULL, NULL); }
