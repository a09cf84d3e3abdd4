/* Entry point of the launcher image: copies the launcher to where the init container of a worker wants it.

   A static program of its own, because the image has nothing else: no shell, no libraries, no Python.
   Exit status: 0 when the launcher is in place, 1 when it cannot be copied, 2 when the command line is wrong.

   Tests: tests/unit/imagebuild/test_install.py. */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef SOURCE
#define SOURCE "/launcher/run.pyz"
#endif

static int report(const char *action, const char *path)
{
    fprintf(stderr, "muster: cannot %s %s: %s\n", action, path, strerror(errno));
    return 1;
}

static int copy(int source, int target, const char *path)
{
    static char buffer[1 << 16];
    ssize_t length;

    while ((length = read(source, buffer, sizeof buffer)) > 0)
        for (ssize_t written, done = 0; done < length; done += written)
            if ((written = write(target, buffer + done, length - done)) < 0)
                return report("write", path);
    if (length < 0)
        return report("read", SOURCE);
    /* Whatever the umask: the container that trains may run as another user. */
    if (fchmod(target, 0755) != 0)
        return report("write", path);
    return 0;
}

int main(int argc, char **argv)
{
    char temporary[PATH_MAX];

    if (argc != 3 || strcmp(argv[1], "--install") != 0) {
        fputs("usage: --install DESTINATION\n", stderr);
        return 2;
    }
    const char *destination = argv[2];
    int length = snprintf(temporary, sizeof temporary, "%s.new", destination);
    if (length < 0 || (size_t)length >= sizeof temporary) {
        errno = ENAMETOOLONG;
        return report("write", destination);
    }
    int source = open(SOURCE, O_RDONLY | O_CLOEXEC);
    if (source < 0)
        return report("read", SOURCE);
    unlink(temporary); /* what a copier that was killed has left */
    int target = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (target < 0)
        return report("write", temporary);
    int failed = copy(source, target, temporary);
    if (close(target) != 0 && !failed)
        failed = report("write", temporary);
    if (!failed && rename(temporary, destination) != 0)
        failed = report("write", destination);
    if (failed)
        unlink(temporary);
    return failed;
}
