#include "common/rpc/accept.h"
#include "common/clock.h"
#include "common/log/log.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { REFUSED_AT_ONCE = 8192 }; /* twice the longest queue of Linux: a flood has an end here */
#define LOG_EVERY_NS INT64_C(10000000000)

static _Atomic int reserve = -1; /* taken with an exchange: it has one owner */
static _Atomic int64_t logged_ns;

static void fill_reserve(void)
{
    int none = -1;
    const int fd = open("/", O_PATH | O_CLOEXEC);
    if (fd >= 0 && !atomic_compare_exchange_strong(&reserve, &none, fd))
        close(fd);
}

void rpc_accept_reserve(void)
{
    if (atomic_load(&reserve) < 0)
        fill_reserve();
}

static int accept_now(int fd, struct sockaddr *from, socklen_t *n, int flags)
{
    return (int)syscall(SYS_accept4, fd, from, n, flags);
}

static void complain(int error)
{
    const int64_t now = clock_ns(), last = atomic_load(&logged_ns);
    if (last && now - last < LOG_EVERY_NS)
        return;
    atomic_store(&logged_ns, now);
    LOG(LOG_WARN, "connections are refused", LOGS("error", strerrordesc_np(error)));
}

/* Closes what waits at `fd`, as far as the reserve allows. */
static void refuse(int fd)
{
    const int held = atomic_exchange(&reserve, -1);
    if (held < 0)
        return;
    close(held);
    for (int i = 0, got; i < REFUSED_AT_ONCE; i++) {
        if ((got = accept_now(fd, NULL, NULL, SOCK_CLOEXEC)) < 0)
            break;
        close(got);
    }
    fill_reserve();
}

/* The name is the C library's, which is the point. */
int accept4(int fd, struct sockaddr *from, socklen_t *n, int flags)
{
    const int got = accept_now(fd, from, n, flags);
    if (got >= 0 || errno == EAGAIN || errno == EINTR || atomic_load(&reserve) < 0)
        return got;
    if (errno == EMFILE || errno == ENFILE) {
        complain(errno);
        refuse(fd);
        errno = EAGAIN;
    }
    return -1;
}
