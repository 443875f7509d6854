/* Which changes of a file change its mapping. */
#include "common/file/file_stamp.h"
#include "tests/temp_folder.h"
#include "tests/unit/test.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char dir[] = "/tmp/file-stamp-XXXXXX", path[64], other[64];

static void write_file(const char *name, int flags, const char *text)
{
    const int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    const struct timespec long_ago[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    if (flags & O_EXCL) /* so that any later write has another time */
        futimens(fd, long_ago);
    close(fd);
}

static bool spoilt_since(const struct file_stamp *was)
{
    const struct file_stamp now = file_stamp_at(path);
    return file_stamp_spoilt(was, &now);
}

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof(path), "%s/file", dir);
    snprintf(other, sizeof(other), "%s/other", dir);
    return 0;
}
static int tear_down(void **state)
{
    (void)state;
    return temp_folder_remove(dir);
}

TEST(of_one_that_is_read_nothing_changes)
{
    write_file(path, O_EXCL, "as it was");
    const struct file_stamp was = file_stamp_at(path);
    chmod(path, 0400);
    assert_false(spoilt_since(&was));
    unlink(path);
    assert_false(spoilt_since(&was)); /* the mapping keeps it */
}

TEST(one_that_is_overwritten_or_shortened_is_spoilt)
{
    write_file(path, O_EXCL, "as it was");
    const struct file_stamp was = file_stamp_at(path);
    write_file(path, 0, "as it is!"); /* as long */
    assert_true(spoilt_since(&was));
    unlink(path);
    write_file(path, O_EXCL, "as it was");
    const struct file_stamp again = file_stamp_at(path);
    assert_int_equal(truncate(path, 2), 0);
    assert_true(spoilt_since(&again));
    unlink(path);
}

TEST(one_that_is_replaced_is_not)
{
    write_file(path, O_EXCL, "as it was");
    const struct file_stamp was = file_stamp_at(path);
    write_file(other, O_EXCL, "another one");
    assert_int_equal(rename(other, path), 0);
    assert_false(spoilt_since(&was));
    unlink(path);
}

TEST(what_is_unknown_is_never_spoilt)
{
    const struct file_stamp none = file_stamp_at(path);
    assert_int_equal(none.inode, 0);
    write_file(path, O_EXCL, "new");
    assert_false(spoilt_since(&none));
    unlink(path);
}

int main(void) { return tests_run(set_up, tear_down); }
