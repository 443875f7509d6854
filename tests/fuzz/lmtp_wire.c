// fuzz-sources: router/http/ws.c router/api/lmtp/lines.c common/buf.c common/utf8.c
// fuzz-sources: common/err.c common/log/log.c common/log/sink.c common/json/json.c
// fuzz-sources: common/json/reader.c common/arena.c common/json/exact.c
/* Frames and lines: whatever a client sends, in whatever pieces, reading it ends, what comes out is
 * UTF-8 and no longer than it may be, and answers can be written. */
#include "common/utf8.h"
#include "router/api/lmtp/lines.h"
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LONGEST = 64 };

static struct wire *wire;

static void message(void *arg, const char *p, size_t n)
{
    (void)arg;
    if (n > LONGEST || !utf8_valid(p, n))
        abort();
    wire_send(wire, p, n);
}

static void malformed(void *arg, const char *what)
{
    (void)arg;
    if (!*what)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wire_owner owner = {message, malformed, NULL};
    int fd[2];
    if (size < 2 || size > 4096 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd) != 0)
        return 0;
    bool lines = data[0] & 1;
    size_t piece = 1 + data[1], at = 2;
    size_t early = data[0] & 2 && !lines && size - at > piece ? piece : 0;
    wire = lines ? lines_new(fd[0], LONGEST, &owner)
                 : ws_new(fd[0], data + at, early, LONGEST, &owner);
    if (!wire)
        abort();
    bool open = true;
    for (at += early; open && at < size; at += piece) {
        size_t n = size - at < piece ? size - at : piece;
        char waste[4096];
        if (write(fd[1], data + at, n) != (ssize_t)n)
            abort();
        open = wire_read(wire) == 0 && wire_write(wire) == 0;
        while (read(fd[1], waste, sizeof(waste)) > 0) {
        }
    }
    shutdown(fd[1], SHUT_WR);
    if (open && wire_read(wire) == 0)
        wire_close(wire, WIRE_NORMAL, "");
    wire_write(wire);
    wire_free(wire);
    close(fd[0]);
    close(fd[1]);
    return 0;
}
