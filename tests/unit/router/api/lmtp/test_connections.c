/* How clients come, what their frames and lines may be, and how connections end. */
#include "tests/unit/router/api/lmtp/client.h"
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* The server's end of a connection; it lives in this process too. */
static int other_end(int fd)
{
    struct sockaddr_in mine, theirs;
    socklen_t n = sizeof(mine);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&mine, &n), 0);
    for (int i = 3; i < 1024; i++) {
        n = sizeof(theirs);
        if (i != fd && getpeername(i, (struct sockaddr *)&theirs, &n) == 0 &&
            theirs.sin_family == AF_INET && theirs.sin_port == mine.sin_port)
            return i;
    }
    fail_msg("no socket answers this one");
    return -1;
}

/* libmicrohttpd hands a socket over that waits for acknowledgements, and tokens come in lumps. */
TEST(test_nothing_is_held_back)
{
    int fd = ws_open(&rig), on = 0;
    socklen_t n = sizeof(on);
    speak(fd, GENERATE_2);
    expect(fd, TOKEN_1);
    expect(fd, TOKEN_2);
    assert_int_equal(getsockopt(other_end(fd), IPPROTO_TCP, TCP_NODELAY, &on, &n), 0);
    assert_true(on);
    hang_up(&rig, fd);
}

TEST(test_frames)
{
    struct buf b = BUF_INIT;
    int fd = ws_open(&rig);
    frame(fd, FIN | BINARY, GENERATE_2, strlen(GENERATE_2), true); /* ignored */
    frame(fd, TEXT, "GENERATE {\"prompt\":", 19, true);
    frame(fd, FIN | PING, "ping!", 5, true);
    frame(fd, 0, "[1],\"max_tokens\":2", 18, true);
    frame(fd, FIN | 0, ",\"stream_id\":1}", 15, true);
    assert_int_equal(listen_any(fd, &b), PONG);
    assert_string_equal(b.p, "ping!");
    expect(fd, TOKEN_1);
    expect(fd, TOKEN_2);
    frame(fd, FIN | CLOSE, "\x03\xe8", 2, true);
    assert_int_equal(closed_with(fd), 1000);
    hang_up(&rig, fd);
    fd = ws_open(&rig);
    speak(fd, "GENERATE {\"prompt\":[1],\"max_tokens\":3000,\"stream_id\":1}");
    frame(fd, FIN | TEXT, GENERATE_2, strlen(GENERATE_2), false);
    assert_int_equal(closed_with(fd), 1002);
    hang_up(&rig, fd);
    fd = ws_open(&rig);
    frame(fd, FIN | 0x40 | TEXT, GENERATE_2, strlen(GENERATE_2), true);
    assert_int_equal(closed_with(fd), 1002);
    hang_up(&rig, fd);
    fd = ws_open(&rig);
    frame(fd, FIN | TEXT, "GENERATE {\"\xff\":1}", 16, true);
    assert_int_equal(closed_with(fd), 1007);
    hang_up(&rig, fd);
    buf_free(&b);
}

TEST(test_the_size_of_a_message)
{
    size_t n = 5 << 20;
    char *big = malloc(n);
    memset(big, ' ', n);
    memcpy(big, GENERATE_2, strlen(GENERATE_2));
    int fd = ws_open(&rig);
    frame(fd, FIN | TEXT, big, 4 << 20, true);
    expect(fd, TOKEN_1);
    expect(fd, TOKEN_2);
    frame(fd, FIN | TEXT, big, n, true);
    assert_int_equal(closed_with(fd), 1009);
    free(big);
    hang_up(&rig, fd);
}

TEST(test_handshakes)
{
    static const struct {
        const char *path, *headers;
        int status;
    } rows[] = {
        {"/", UPGRADE, 101},
        {"/lmtp", UPGRADE, 101},
        {"/health", UPGRADE, 200}, /* an offer that is not taken */
        {"/nowhere", UPGRADE, 404},
        {"/lmtp", "", 426},
        {"/",
         "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 8\r\n"
         "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
         426},
        {"/", "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n", 400},
        {"/",
         "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
         "Sec-WebSocket-Key: short\r\n",
         400},
        {"/",
         "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
         "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
         400},
    };
    struct buf b = BUF_INIT;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int fd = open_path(&rig, rows[i].path, rows[i].headers, &b);
        if (status_of(b.p) != rows[i].status)
            fail_msg("row %zu: %s", i, b.p);
        close(fd);
    }
    buf_free(&b);
}

/* A busy server sends several tokens in one message: as one message each. */
static const char *apart(struct buf *b)
{
    static const char joint[] = "},{\"token\":", cut[] = "}]\nTOKEN [{\"token\":";
    struct buf out = BUF_INIT;
    const char *from = b->p;
    for (const char *at; (at = strstr(from, joint)); from = at + strlen(joint)) {
        buf_add(&out, from, (size_t)(at - from));
        buf_str(&out, cut);
    }
    buf_str(&out, from);
    buf_free(b);
    *b = out;
    return b->p;
}

TEST(test_lines)
{
    struct buf b = BUF_INIT;
    int fd = dial_unix();
    const char *two = "nonsense\r\n\n" GENERATE_2; /* the last line lacks its end */
    say(fd, two, 20);
    usleep(20000);
    say(fd, two + 20, strlen(two) - 20);
    shutdown(fd, SHUT_WR);
    receive(fd, &b);
    assert_string_equal(
        apart(&b), "MSG [{\"stream_id\":null,\"error\":\"a message is a type, a space and a JSON "
                   "object\"}]\n" TOKEN_1 "\n" TOKEN_2 "\n");
    close(fd);
    char *big = malloc(5 << 20);
    memset(big, 'x', 5 << 20);
    fd = dial_unix();
    say(fd, big, 5 << 20);
    say(fd, "\n" GENERATE_2 "\n", strlen(GENERATE_2) + 2);
    shutdown(fd, SHUT_WR);
    must_have(receive(fd, &b), "too long");
    must_have(apart(&b), TOKEN_2);
    close(fd);
    free(big);
    fd = dial_unix();
    say(fd, "GENERATE {\"prompt\":[1],\"max_tokens\":3000,\"stream_id\":1}\n", 57);
    assert_true(recv(fd, &(char){0}, 1, 0) == 1);
    hang_up(&rig, fd);
    buf_free(&b);
}

/* In a child: what the server does with a connection of user 65534. 0: it is closed at once. */
static int as_another_user(void)
{
    char byte;
    if (setgid(65534) != 0 || setuid(65534) != 0)
        return 2;
    int fd = dial_unix();
    ssize_t n = send(fd, GENERATE_2 "\n", strlen(GENERATE_2) + 1, MSG_NOSIGNAL);
    n = recv(fd, &byte, 1, 0);
    return n == 0 || (n < 0 && errno == ECONNRESET) ? 0 : 1;
}

TEST(test_lines_of_another_user)
{
    const char *path = rig.config.lmtp_listen + 5;
    struct stat st;
    int status;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    if (geteuid() != 0)
        skip(); /* only root can become another user */
    assert_int_equal(chmod(path, 0777), 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(as_another_user());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    int fd = dial_unix(); /* its own user is served still */
    say(fd, GENERATE_2 "\n", strlen(GENERATE_2) + 1);
    assert_true(recv(fd, &(char){0}, 1, 0) == 1);
    hang_up(&rig, fd);
}

/* Last: the server says goodbye to those who are in the middle, and to those who wait. */
TEST(test_shutdown)
{
    struct buf b = BUF_INIT;
    int busy = ws_open(&rig), idle = ws_open(&rig), lines = dial_unix();
    speak(busy, "GENERATE {\"prompt\":[1],\"max_tokens\":3000,\"stream_id\":1}");
    expect(busy, TOKEN_1);
    lmtp_stop(rig.edge.lmtp);
    int op;
    bool told = false;
    while ((op = listen_any(busy, &b)) == TEXT)
        told |= strstr(b.p, "{\"stream_id\":1,\"error\":\"the server is shutting down\"}") != NULL;
    assert_true(told);
    assert_int_equal(op, CLOSE);
    assert_int_equal((unsigned char)b.p[0] << 8 | (unsigned char)b.p[1], 1001);
    assert_int_equal(closed_with(idle), 1001);
    assert_int_equal(recv(lines, &(char){0}, 1, 0), 0);
    close(busy), close(idle), close(lines);
    buf_free(&b);
}

int main(void) { return tests_run(start, stop); }
