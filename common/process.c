#include "common/process.h"
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

void process_begin(void)
{
    /* open() returns the lowest free number. */
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0)
            (void)open("/", O_PATH); /* where there is no /dev: writing fails */
    signal(SIGCHLD, SIG_DFL);
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGUSR1, SIG_IGN);
    signal(SIGUSR2, SIG_IGN);
}
