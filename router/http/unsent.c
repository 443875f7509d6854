#include "router/http/unsent.h"
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

/* After a reset the queue's numbers keep their values, and SO_ERROR reports the reset only once. So
 * the connection state decides. */
int unsent(int fd)
{
    struct tcp_info info = {.tcpi_state = TCP_ESTABLISHED};
    socklen_t len = sizeof(info);
    int n = 0;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 && info.tcpi_state == TCP_CLOSE)
        return 0;
    return ioctl(fd, SIOCOUTQ, &n) == 0 && n > 0 ? n : 0;
}
