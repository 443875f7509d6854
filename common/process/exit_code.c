#include "common/process/exit_code.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>

int exit_code(const struct err *e)
{
    if (e->sys == ENOENT || e->sys == ENOTDIR)
        return EX_NOINPUT;
    if (e->sys == EACCES || e->sys == EPERM)
        return EX_NOPERM;
    switch (e->kind) {
    case ERR_VALIDATION:
    case ERR_SYNTAX:
    case ERR_SHAPE:
    case ERR_NOT_FOUND:
    case ERR_TOO_LONG:
    case ERR_NO_MODEL:
    case ERR_TASK:
    case ERR_TEMPLATE:
        return EX_CONFIG;
    default:
        return EXIT_FAILURE;
    }
}

int exit_code_of_child(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
