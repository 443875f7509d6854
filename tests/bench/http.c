/* What the router adds between a shard and a client, beside what libmicrohttpd alone takes: the
 * real router as a process, a shard that computes nothing, clients on one epoll.
 *
 *   paced      a step every 10 ms: time from the step's end to the event in the client's hands
 *   unpaced    as many tokens as go through
 *   /health    small requests on 16 connections
 *   idle       memory of streams that wait
 *
 * CPU is that of the router's process. With --tls the same over TLS. */
#include "bare.h"
#include "common/clock.h"
#include "tests/fake_shard.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <gnutls/gnutls.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

extern char **environ;

enum { BUF = 1 << 16, MAX_CLIENTS = 8192 };

static char shard_path[100];
static const char *bin_dir, *tls_folder; /* tls_folder NULL: plain */
static gnutls_certificate_credentials_t trust;

static _Noreturn void die(const char *what)
{
    perror(what);
    exit(1);
}

/* ---------------------------------------------------------------- servers */

struct server {
    pid_t pid;
    uint16_t port;
};

static uint16_t free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(fd, (struct sockaddr *)&a, n) != 0 || getsockname(fd, (struct sockaddr *)&a, &n) != 0)
        die("bind");
    close(fd);
    return ntohs(a.sin_port);
}

static int64_t cpu_ns(const struct server *s)
{
    clockid_t c;
    struct timespec t = {0};
    if (clock_getcpuclockid(s->pid, &c) == 0)
        clock_gettime(c, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static long rss_kb(const struct server *s)
{
    char path[64], line[256];
    long kb = -1;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)s->pid);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "VmRSS: %ld", &kb) == 1)
            break;
    if (f)
        fclose(f);
    return kb;
}

static struct server start_router(void)
{
    struct server s = {.port = free_port()};
    char path[256], port[8], cert[256], key[256];
    snprintf(path, sizeof(path), "%s/router", bin_dir);
    snprintf(port, sizeof(port), "%u", s.port);
    snprintf(cert, sizeof(cert), "%s/cert.pem", tls_folder ? tls_folder : "");
    snprintf(key, sizeof(key), "%s/key.pem", tls_folder ? tls_folder : "");
    char *argv[] = {path,          "--tokenizer-name",
                    "models/demo", "--port",
                    port,          "--hostname",
                    "127.0.0.1",   "--master-shard-uds-path",
                    shard_path,    "--max-concurrent-requests",
                    "8000",        "--max-batch-size",
                    "256",         "--max-batch-prefill-tokens",
                    "8192",        tls_folder ? "--tls-cert" : NULL,
                    cert,          "--tls-key",
                    key,           NULL};
    posix_spawn_file_actions_t quiet;
    posix_spawn_file_actions_init(&quiet);
    posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
    if (posix_spawn(&s.pid, path, &quiet, NULL, argv, environ) != 0)
        die(path);
    posix_spawn_file_actions_destroy(&quiet);
    return s;
}

static struct server start_bare(uint32_t streams, uint32_t tokens, int step_ms)
{
    struct server s = {.port = free_port()};
    if ((s.pid = fork()) == 0)
        bare_serve(s.port, streams, tokens, step_ms);
    return s;
}

static void stop(struct server *s)
{
    kill(s->pid, SIGTERM);
    waitpid(s->pid, NULL, 0);
}

/* ---------------------------------------------------------------- clients */

struct client {
    int fd;
    gnutls_session_t tls;
    uint32_t n; /* tokens, or replies */
};

static struct client clients[MAX_CLIENTS];

static void send_all(struct client *c, const char *p, size_t n)
{
    while (n) {
        ssize_t k = c->tls ? gnutls_record_send(c->tls, p, n) : send(c->fd, p, n, MSG_NOSIGNAL);
        if (k == GNUTLS_E_AGAIN || (k < 0 && !c->tls && errno == EAGAIN))
            continue;
        if (k <= 0)
            die("send");
        p += k;
        n -= (size_t)k;
    }
}

/* 0: nothing more now; -1: closed. */
static ssize_t receive(struct client *c, char *p, size_t n)
{
    ssize_t k = c->tls ? gnutls_record_recv(c->tls, p, n) : recv(c->fd, p, n, 0);
    if (k > 0)
        return k;
    return k == 0 ? -1 : c->tls ? (k == GNUTLS_E_AGAIN ? 0 : -1) : errno == EAGAIN ? 0 : -1;
}

static bool connect_to(struct client *c, const struct server *s)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(s->port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    *c = (struct client){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (connect(c->fd, (struct sockaddr *)&a, sizeof(a)) != 0) {
        close(c->fd);
        return false;
    }
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (tls_folder) {
        gnutls_init(&c->tls, GNUTLS_CLIENT);
        gnutls_set_default_priority(c->tls);
        gnutls_credentials_set(c->tls, GNUTLS_CRD_CERTIFICATE, trust);
        gnutls_transport_set_int(c->tls, c->fd);
        int rc;
        while ((rc = gnutls_handshake(c->tls)) < 0)
            if (gnutls_error_is_fatal(rc))
                return false;
    }
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    return true;
}

static void hang_up(struct client *c)
{
    if (c->tls)
        gnutls_deinit(c->tls);
    close(c->fd);
}

static void request(struct client *c, const char *text) { send_all(c, text, strlen(text)); }

/* The router answers 200 when its shard has warmed up. */
static void wait_ready(const struct server *s)
{
    static const char health[] = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";
    for (int i = 0; i < 500; i++) {
        char got[512] = "";
        if (connect_to(&clients[0], s)) {
            request(&clients[0], health);
            for (int k = 0; k < 100 && receive(&clients[0], got, sizeof(got) - 1) == 0; k++)
                usleep(1000);
            hang_up(&clients[0]);
            if (strstr(got, " 200 "))
                return;
        }
        usleep(20000);
    }
    die("the server does not get ready");
}

static void open_streams(const struct server *s, uint32_t n, uint32_t tokens)
{
    char body[256], text[512];
    snprintf(body, sizeof(body),
             "{\"inputs\":\"Once upon a time\",\"parameters\":{\"max_new_tokens\":%u,"
             "\"ignore_eos\":true}}",
             tokens);
    snprintf(text, sizeof(text),
             "POST /generate_stream HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
             "Content-Length: %zu\r\n\r\n%s",
             strlen(body), body);
    for (uint32_t i = 0; i < n; i++) {
        if (!connect_to(&clients[i], s))
            die("connect");
        request(&clients[i], text);
    }
}

static int epoll_of(uint32_t n)
{
    int e = epoll_create1(EPOLL_CLOEXEC);
    for (uint32_t i = 0; i < n; i++) {
        struct epoll_event ev = {.events = EPOLLIN | EPOLLET, .data.u32 = i};
        epoll_ctl(e, EPOLL_CTL_ADD, clients[i].fd, &ev);
    }
    return e;
}

/* ---------------------------------------------------------------- what is measured */

static float *late; /* us */
static size_t n_late, cap_late;

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double percentile(double share)
{
    return n_late ? (double)late[(size_t)(share * (double)(n_late - 1))] : 0;
}

/* Events of one read: each begins with "data:" and says when its step was through. */
static uint32_t events(const char *p, size_t n, int64_t now)
{
    uint32_t found = 0;
    const char *end = p + n;
    while ((p = memmem(p, (size_t)(end - p), "\"text\":\"", 8))) {
        int64_t stamp = strtoll(p + 8, NULL, 10);
        found++;
        if (stamp && n_late < cap_late)
            late[n_late++] = (float)(now - stamp) / 1e3f;
        p += 8;
    }
    return found;
}

struct result {
    double tokens_per_s, cpu_us, p50, p99;
};

/* All streams to their end. The first half is warm-up: only the second is measured. */
static struct result drain(const struct server *s, uint32_t n, uint32_t tokens)
{
    static char buf[BUF];
    int e = epoll_of(n);
    uint64_t all = 0, whole = (uint64_t)n * tokens, from = 0;
    int64_t t0 = 0, cpu0 = 0;
    n_late = 0;
    while (all < whole) {
        struct epoll_event ev[256];
        int k = epoll_wait(e, ev, 256, 10000);
        if (k <= 0)
            die("streams stand still");
        for (int i = 0; i < k; i++) {
            struct client *c = &clients[ev[i].data.u32];
            ssize_t got;
            while ((got = receive(c, buf, sizeof(buf) - 1)) > 0) {
                buf[got] = 0;
                all += events(buf, (size_t)got, clock_ns());
            }
            if (got < 0 && all < whole)
                die("a stream was closed");
        }
        if (!t0 && all >= whole / 2) {
            t0 = clock_ns();
            cpu0 = cpu_ns(s);
            from = all;
            n_late = 0;
        }
    }
    double wall = (double)(clock_ns() - t0), done = (double)(all - from);
    double cpu = (double)(cpu_ns(s) - cpu0);
    close(e);
    qsort(late, n_late, sizeof(*late), by_size);
    return (struct result){done / wall * 1e9, cpu / done / 1e3, percentile(0.5), percentile(0.99)};
}

static struct result streams(bool bare, uint32_t n, uint32_t tokens, int step_ms)
{
    struct server s = bare ? start_bare(n, tokens, step_ms) : start_router();
    wait_ready(&s);
    open_streams(&s, n, tokens);
    struct result r = drain(&s, n, tokens);
    for (uint32_t i = 0; i < n; i++)
        hang_up(&clients[i]);
    stop(&s);
    return r;
}

static struct result health(bool bare, double seconds)
{
    static const char ask[] = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";
    static char buf[BUF];
    enum { CONNECTIONS = 16 };
    struct server s = bare ? start_bare(1, 1, 10) : start_router();
    wait_ready(&s);
    for (uint32_t i = 0; i < CONNECTIONS; i++) {
        if (!connect_to(&clients[i], &s))
            die("connect");
        request(&clients[i], ask);
    }
    int e = epoll_of(CONNECTIONS);
    uint64_t done = 0;
    int64_t t0 = clock_ns(), cpu0 = cpu_ns(&s), end = t0 + (int64_t)(seconds * 1e9), now = t0;
    while (now < end) {
        struct epoll_event ev[CONNECTIONS];
        int k = epoll_wait(e, ev, CONNECTIONS, 1000);
        if (k <= 0)
            die("requests stand still");
        for (int i = 0; i < k; i++) {
            struct client *c = &clients[ev[i].data.u32];
            if (receive(c, buf, sizeof(buf)) > 0) { /* a reply is smaller than a segment */
                done++;
                request(c, ask);
            }
        }
        now = clock_ns();
    }
    struct result r = {(double)done / (double)(now - t0) * 1e9,
                       (double)(cpu_ns(&s) - cpu0) / (double)done / 1e3, 0, 0};
    close(e);
    for (uint32_t i = 0; i < CONNECTIONS; i++)
        hang_up(&clients[i]);
    stop(&s);
    return r;
}

/* Streams that are open and wait for their first token: the shard's first step does not end. */
static void idle(struct fake_shard *f, uint32_t n)
{
    struct server s = start_router();
    wait_ready(&s);
    long before = rss_kb(&s);
    f->hold = 1;
    open_streams(&s, n, 10);
    static char buf[4096];
    for (uint32_t i = 0; i < n; i++)
        while (receive(&clients[i], buf, sizeof(buf)) <= 0)
            usleep(100);
    long after = rss_kb(&s);
    printf("| %u idle streams | %.1f MB | %.1f KB each; %.1f MB without any |\n", n,
           (double)after / 1024, (double)(after - before) / n, (double)before / 1024);
    for (uint32_t i = 0; i < n; i++)
        hang_up(&clients[i]);
    f->hold = 0;
    stop(&s);
}

static void row(const char *name, struct result (*run)(bool, uint32_t, uint32_t, int), uint32_t n,
                uint32_t tokens, int step_ms)
{
    struct result r = run(false, n, tokens, step_ms), b = {0};
    if (!tls_folder)
        b = run(true, n, tokens, step_ms);
    printf("| %s, %u streams | %.0f | %.2f | %.0f | %.0f | %.0f | %.2f | %.0f | %.0f |\n", name, n,
           r.tokens_per_s, r.cpu_us, r.p50, r.p99, b.tokens_per_s, b.cpu_us, b.p50, b.p99);
    fflush(stdout);
}

static bool wanted(const char *what, const char *only) { return !*only || !strcmp(what, only); }

static void make_certificate(void)
{
    static char folder[] = "/tmp/bench-tls-XXXXXX";
    char command[512];
    if (!mkdtemp(folder))
        die("mkdtemp");
    snprintf(command, sizeof(command),
             "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "
             "/CN=bench -keyout %s/key.pem -out %s/cert.pem 2>/dev/null",
             folder, folder);
    if (system(command) != 0) // NOLINT(cert-env33-c): the benchmark's own words
        die("openssl");
    gnutls_certificate_allocate_credentials(&trust);
    tls_folder = folder;
}

static void remove_certificate(void)
{
    char path[300];
    static const char *const names[] = {"/key.pem", "/cert.pem", ""};
    for (int i = 0; tls_folder && i < 3; i++) {
        snprintf(path, sizeof(path), "%s%s", tls_folder, names[i]);
        remove(path);
    }
}

int main(int argc, char **argv)
{
    struct fake_shard f = {.block_size = 16, .n_blocks = 65536, .quick = true, .stamps = true};
    struct rlimit files = {MAX_CLIENTS + 100, MAX_CLIENTS + 100};
    const char *only = argc > 1 && strcmp(argv[argc - 1], "--tls") != 0 ? argv[argc - 1] : "";
    bin_dir = getenv("BIN_DIR") ? getenv("BIN_DIR") : "build/bin";
    if (argc > 1 && !strcmp(argv[1], "--tls"))
        make_certificate();
    setrlimit(RLIMIT_NOFILE, &files);
    cap_late = 1 << 20;
    late = malloc(cap_late * sizeof(*late));
    snprintf(shard_path, sizeof(shard_path), "/tmp/bench-http-%d", (int)getpid());
    memcpy(f.path, shard_path, sizeof(f.path));
    fake_start(&f);
    printf("| %s | tokens/s | CPU us/token | p50 us | p99 us | bare tokens/s | CPU us | p50 us | "
           "p99 us |\n"
           "|---|--:|--:|--:|--:|--:|--:|--:|--:|\n",
           tls_folder ? "TLS" : "plain");
    f.step_ms = 10;
    for (uint32_t n = 1; wanted("paced", only) && n <= 128; n *= n == 1 ? 32 : 4)
        row("10 ms steps", streams, n, 300, 10);
    f.step_ms = 0;
    for (uint32_t n = 32; wanted("unpaced", only) && n <= 128; n *= 4)
        row("unpaced", streams, n, 2000, 0);
    if (wanted("health", only)) {
        struct result r = health(false, 3), b = {0};
        if (!tls_folder)
            b = health(true, 3);
        printf("| GET /health, 16 connections | %.0f | %.2f | | | %.0f | %.2f | | |\n",
               r.tokens_per_s, r.cpu_us, b.tokens_per_s, b.cpu_us);
    }
    if (wanted("idle", only))
        idle(&f, 4000);
    fake_stop(&f);
    remove_certificate();
    free(late);
    return 0;
}
