// Fetching from a server of our own that answers well, badly, slowly and without end.
#include "common/clock.h"
#include "router/media/fetch.h"
#include "tests/unit/test.h"
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---------------------------------------------------------------- the server */
static struct {
    int fd, port;
    pthread_t thread;
    char request[8192]; /* the last one */
    int requests;
} server;

enum behaviour { PLAIN, DRIBBLE, ENDLESS, SILENT, MANY_HEADERS };
static const struct page {
    const char *path, *answer; /* %d: the port */
    enum behaviour behaviour;
} pages[] = {
    {"/file", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", PLAIN},
    {"/unsized", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello", PLAIN},
    {"/empty", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", PLAIN},
    {"/packed", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello",
     PLAIN},
    {"/large", "HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\nx", PLAIN},
    {"/cut", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", PLAIN},
    {"/missing", "HTTP/1.1 404 Not Found\r\nContent-Length: 6\r\n\r\nsecret", PLAIN},
    {"/nothing", "HTTP/1.1 204 No Content\r\n\r\n", PLAIN},
    {"/rubbish", "What?\r\n\r\n", PLAIN},
    {"/1", "HTTP/1.1 302 Found\r\nLocation: /file\r\nContent-Length: 4\r\n\r\nbody", PLAIN},
    {"/2", "HTTP/1.1 301 Moved\r\nLocation: /1\r\nContent-Length: 0\r\n\r\n", PLAIN},
    {"/3", "HTTP/1.1 307 X\r\nLocation: http://127.0.0.1:%d/2\r\nContent-Length: 0\r\n\r\n", PLAIN},
    {"/4", "HTTP/1.1 308 X\r\nLocation: /3\r\nContent-Length: 0\r\n\r\n", PLAIN},
    {"/loop", "HTTP/1.1 302 X\r\nLocation: /loop\r\nContent-Length: 0\r\n\r\n", PLAIN},
    {"/nowhere", "HTTP/1.1 302 X\r\nContent-Length: 0\r\n\r\n", PLAIN},
    {"/private", "HTTP/1.1 302 X\r\nLocation: http://10.1.2.3/\r\nContent-Length: 0\r\n\r\n",
     PLAIN},
    {"/to_file", "HTTP/1.1 302 X\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n",
     PLAIN},
    {"/to_user",
     "HTTP/1.1 302 X\r\nLocation: http://a:b@127.0.0.1:%d/file\r\n"
     "Content-Length: 0\r\n\r\n",
     PLAIN},
    {"/to_other",
     "HTTP/1.1 302 X\r\nLocation: http://localhost:%d/file\r\n"
     "Content-Length: 0\r\n\r\n",
     PLAIN},
    {"/dribble", "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n", DRIBBLE},
    {"/endless", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", ENDLESS},
    {"/silent", "", SILENT},
    {"/headers", "HTTP/1.1 200 OK\r\n", MANY_HEADERS},
};

static bool say(int fd, const char *p, size_t n)
{
    return send(fd, p, n, MSG_NOSIGNAL) == (ssize_t)n;
}

/* Until the client hangs up. */
static void misbehave(int fd, enum behaviour b)
{
    static const char chunk[] =
        "40\r\n0123456789abcdef0123456789abcdef0123456789abcdef0123456789abc"
        "def\r\n";
    static const char header[] =
        "X-Something: 0123456789abcdef0123456789abcdef0123456789abcdef\r\n";
    struct pollfd p = {fd, POLLIN, 0};
    switch (b) {
    case DRIBBLE:
        while (poll(&p, 1, 20) == 0 && say(fd, "x", 1))
            ;
        break;
    case ENDLESS:
        while (say(fd, chunk, sizeof(chunk) - 1))
            ;
        break;
    case MANY_HEADERS:
        while (say(fd, header, sizeof(header) - 1))
            ;
        break;
    case SILENT:
        poll(&p, 1, 60000);
        break;
    default:
        break;
    }
}

static void answer(int fd)
{
    char path[100] = "", text[500];
    size_t n = 0;
    for (ssize_t got;
         n < sizeof(server.request) - 1 &&
         (got = recv(fd, server.request + n, sizeof(server.request) - 1 - n, 0)) > 0;) {
        server.request[n += (size_t)got] = '\0';
        if (strstr(server.request, "\r\n\r\n"))
            break;
    }
    server.requests++;
    if (sscanf(server.request, "GET %99s", path) != 1)
        return;
    for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++)
        if (!strcmp(pages[i].path, path)) {
            const char *port = strstr(pages[i].answer, "%d");
            if (port)
                snprintf(text, sizeof(text), "%.*s%d%s", (int)(port - pages[i].answer),
                         pages[i].answer, server.port, port + 2);
            else
                snprintf(text, sizeof(text), "%s", pages[i].answer);
            say(fd, text, strlen(text));
            misbehave(fd, pages[i].behaviour);
        }
}

static void *serve(void *arg)
{
    (void)arg;
    for (int fd; (fd = accept(server.fd, NULL, NULL)) >= 0; close(fd))
        answer(fd);
    return NULL;
}

static int start_server(void **state)
{
    (void)state;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof(a);
    server.fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(server.fd, (struct sockaddr *)&a, sizeof(a)) || listen(server.fd, 8) ||
        getsockname(server.fd, (struct sockaddr *)&a, &n))
        return -1;
    server.port = ntohs(a.sin_port);
    return pthread_create(&server.thread, NULL, serve, NULL);
}

static int stop_server(void **state)
{
    (void)state;
    shutdown(server.fd, SHUT_RDWR);
    pthread_join(server.thread, NULL);
    close(server.fd);
    return 0;
}

/* ---------------------------------------------------------------- the client */
static const struct media_fetch_options usual = {
    .max_bytes = 1000, .timeout_ms = 30000, .allow_loopback = true};

static int fetch_with(const struct media_fetch_options *o, const char *path, struct buf *out,
                      struct err *e)
{
    char url[200];
    *e = (struct err)ERR_INIT;
    *out = (struct buf)BUF_INIT;
    snprintf(url, sizeof(url), "http://127.0.0.1:%d%s", server.port, path);
    return media_fetch(o, url, out, e);
}

static void expect_file(const struct media_fetch_options *o, const char *path, const char *want)
{
    struct buf out;
    struct err e;
    if (fetch_with(o, path, &out, &e))
        fail_msg("%s: %s", path, e.msg);
    assert_int_equal(out.len, strlen(want));
    assert_string_equal(out.p ? out.p : "", want);
    buf_free(&out);
}

static void expect_error(const struct media_fetch_options *o, const char *path, const char *words)
{
    struct buf out;
    struct err e;
    assert_int_equal(fetch_with(o, path, &out, &e), -1);
    if (strcmp(e.msg, words) != 0)
        fail_msg("%s: %s", path, e.msg);
    assert_int_equal(e.kind, ERR_VALIDATION);
    assert_null(out.p);
}

TEST(files)
{
    setenv("http_proxy", "http://127.0.0.1:1/", 1); /* is not asked */
    setenv("all_proxy", "http://127.0.0.1:1/", 1);
    expect_file(&usual, "/file", "hello");
    assert_non_null(strstr(server.request, "\r\nAccept-Encoding: identity\r\n"));
    assert_non_null(strstr(server.request, "\r\nUser-Agent: router/"));
    assert_null(strstr(server.request, "Authorization"));
    expect_file(&usual, "/unsized", "hello");
    expect_file(&usual, "/empty", "");
    expect_file(&usual, "/packed", "hello"); /* as it came: nothing is unpacked */
    struct media_fetch_options o = usual;
    o.max_bytes = 5;
    expect_file(&o, "/file", "hello");
    o.max_bytes = 4;
    expect_error(&o, "/file", "the image has more than 4 bytes");
    expect_error(&o, "/unsized", "the image has more than 4 bytes");
}

TEST(failures)
{
    expect_error(&usual, "/large", "the image has more than 1000 bytes");
    expect_error(&usual, "/endless", "the image has more than 1000 bytes");
    expect_error(&usual, "/missing", "the image could not be fetched: HTTP status 404");
    expect_error(&usual, "/nothing", "the image could not be fetched: HTTP status 204");
    static const char *const broken[] = {"/cut", "/rubbish", "/headers", "/no_such_page"};
    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++)
        expect_error(&usual, broken[i],
                     "the image could not be fetched: the answer was broken or incomplete");
}

TEST(slow_ones)
{
    struct media_fetch_options o = usual;
    o.timeout_ms = 400;
    static const char *const slow[] = {"/dribble", "/silent"};
    for (size_t i = 0; i < 2; i++) {
        const int64_t began = clock_ms();
        expect_error(&o, slow[i], "the image could not be fetched within 400 ms");
        const int64_t took = clock_ms() - began;
        assert_true(took >= 350 && took < 10000); /* rounded by two clocks */
    }
}

TEST(redirects)
{
    expect_file(&usual, "/3", "hello");
    expect_error(&usual, "/4", "the image could not be fetched: there are more than 3 redirects");
    const int before = server.requests;
    expect_error(&usual, "/loop",
                 "the image could not be fetched: there are more than 3 redirects");
    assert_int_equal(server.requests - before, 4);
    expect_error(&usual, "/nowhere", "the image could not be fetched: a redirect leads nowhere");
    expect_error(&usual, "/private",
                 "the image URL is not allowed: its host is not at a public address");
    expect_error(&usual, "/to_file", "the image URL is not allowed: it is neither http nor https");
    expect_error(&usual, "/to_user", "the image URL is not allowed: it is malformed");
    static const char *const here[] = {"127.0.0.1", NULL};
    struct media_fetch_options o = usual;
    o.domains = here;
    expect_error(&o, "/to_other",
                 "the image URL is not allowed: its host is not in the list of allowed domains");
    expect_file(&o, "/3", "hello");
}

/* Without the option for tests, loopback is as far away as any private network. */
TEST(loopback)
{
    static const char *const urls[] = {"http://127.0.0.1/",
                                       "http://localhost/",
                                       "http://2130706433/",
                                       "http://0x7f.1/",
                                       "http://[::1]/",
                                       "http://[::ffff:127.0.0.1]/",
                                       "http://0/",

                                       "http://%31%32%37.0.0.1/",
                                       "https://169.254.169.254/latest/meta-data/"};
    const struct media_fetch_options o = {.max_bytes = 1000, .timeout_ms = 30000};
    const int before = server.requests;
    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        struct buf out = BUF_INIT;
        struct err e = ERR_INIT;
        assert_int_equal(media_fetch(&o, urls[i], &out, &e), -1);
        assert_int_equal(e.kind, ERR_VALIDATION);
        if (strcmp(e.msg, "the image URL is not allowed: its host is not at a public address") != 0)
            fail_msg("%s: %s", urls[i], e.msg);
        buf_free(&out);
    }
    assert_int_equal(server.requests, before);
}

TEST(urls)
{
    static const struct {
        const char *url;
        bool fine;
    } rows[] = {{"http://example.com/a.png", true},
                {"https://example.com:443/a.png?x=1#f", true},
                {"http://example.com:80/", true},
                {"https://example.com:80/", true},
                {"HTTPS://EXAMPLE.com/%41", true},
                {"http://example.com/caf\xc3\xa9.png", true},
                {"http://example.com:8080/", false},
                {"http://example.com:22/", false},
                {"http://example.com:0/", false},
                {"http://user@example.com/", false},
                {"http://user:password@example.com/", false},
                {"http://@example.com/", false},
                {"http://example.com\\@evil.com/", false},
                {"http:\\\\example.com/", false},
                {"http://example.com/a b", false},
                {"http://example.com/a\nb", false},
                {"http://example.com/\x7f", false},
                {" http://example.com/", false},
                {"http://ex\xc3\xa4mple.com/", false},
                {"http://ex%C3%A4mple.com/", false},
                {"ftp://example.com/", false},
                {"file:///etc/passwd", false},
                {"gopher://example.com/", false},
                {"data:image/png;base64,AAAA", false},
                {"example.com/a.png", false},
                {"//example.com/a.png", false},
                {"http://", false},
                {"http:///a.png", true}, /* as browsers read it: a host */
                {"http://./", false},
                {"http:example.com", false},
                {"", false}};
    const struct media_fetch_options o = {.max_bytes = 1000, .timeout_ms = 1000};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct err e = ERR_INIT;
        const int rc = media_url_check(&o, rows[i].url, &e);
        if ((rc == 0) != rows[i].fine)
            fail_msg("%s: %d %s", rows[i].url, rc, e.msg);
        if (rc)
            assert_int_equal(e.kind, ERR_VALIDATION);
    }
    char *longest = malloc(10000);
    memset(longest, 'a', 10000);
    memcpy(longest, "http://example.com/", 19);
    longest[9999] = '\0';
    struct err e = ERR_INIT;
    assert_int_equal(media_url_check(&o, longest, &e), -1);
    longest[8192] = '\0';
    assert_int_equal(media_url_check(&o, longest, &e), 0);
    free(longest);
}

TEST(domains)
{
    static const char *const list[] = {"example.com", ".images.org", NULL};
    static const struct {
        const char *url;
        bool fine;
    } rows[] = {{"http://example.com/", true},      {"http://EXAMPLE.com./", true},
                {"http://www.example.com/", false}, {"http://example.com.evil.net/", false},
                {"http://evilexample.com/", false}, {"http://images.org/", true},
                {"http://a.b.images.org/", true},   {"http://evilimages.org/", false},
                {"http://images.org.net/", false},  {"http://org/", false},
                {"http://example.co/", false},      {"http://1.2.3.4/", false}};
    const struct media_fetch_options o = {.max_bytes = 1000, .timeout_ms = 1000, .domains = list};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct err e = ERR_INIT;
        if ((media_url_check(&o, rows[i].url, &e) == 0) != rows[i].fine)
            fail_msg("%s: %s", rows[i].url, e.msg);
    }
}

TEST(no_connection)
{
    struct buf out = BUF_INIT;
    struct err e = ERR_INIT;
    assert_int_equal(media_fetch(&usual, "http://127.0.0.1:1/", &out, &e), -1);
    assert_string_equal(e.msg, "the image could not be fetched: no connection");
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    return tests_run(start_server, stop_server);
}
