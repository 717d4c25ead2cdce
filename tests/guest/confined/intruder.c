/* Runs in place of QEMU: tries to reach the machine, and prints the errno of
 * each attempt, or 0 for a success. Macros name the targets. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

static void told(const char *name, long result) {
    printf(" %s=%d", name, result < 0 ? errno : 0);
}

static long unix_socket(void) {
    struct sockaddr_un to = {.sun_family = AF_UNIX, .sun_path = SOCKET};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    return fd < 0 ? fd : connect(fd, (struct sockaddr *)&to, sizeof to);
}

static long memory_of(int process) {
    char byte;
    struct iovec here = {&byte, 1}, there = {(void *)&byte, 1};
    return syscall(SYS_process_vm_readv, process, &here, 1, &there, 1, 0);
}

/* Counts descriptors other than standard streams and those that QEMU gets. */
static int strange(void) {
    int found = 0;
    for (int fd = 3; fd < 4096; fd++) {
        char path[64], leads_to[256] = {0};
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, leads_to, sizeof leads_to - 1) < 0) continue;
        if (strncmp(leads_to, "socket:", 7) && strncmp(leads_to, "/memfd:svclab", 13)) found++;
    }
    return found;
}

int main(int count, char **words) {
    for (int i = 1; i < count; i++)
        if (!strcmp(words[i], "-version")) {
            puts("QEMU emulator version 9.0.0");
            return 0;
        }
    printf("tried");
    told("shadow", open("/etc/shadow", O_RDONLY));
    told("secret", open(SECRET, O_RDONLY));
    told("device", open("/dev/kmsg", O_WRONLY));
    told("disk", open(DISK, O_RDWR));
    told("usr", open("/usr/svclab-intruder", O_WRONLY | O_CREAT, 0600));
    told("tmp", open("/tmp/svclab-intruder", O_WRONLY | O_CREAT, 0600));
    told("environment", open(ENVIRONMENT, O_RDONLY));
    told("unix", unix_socket());
    told("inet", socket(AF_INET, SOCK_STREAM, 0));
    told("packet", socket(AF_PACKET, SOCK_RAW, 0));
    told("kill", kill(VICTIM, 0));
    told("all", kill(-1, 0));
    told("tgkill", syscall(SYS_tgkill, VICTIM, VICTIM, 0));
    told("pidfd", syscall(SYS_pidfd_open, VICTIM, 0));
    told("ptrace", ptrace(PTRACE_ATTACH, VICTIM, 0, 0));
    told("memory", memory_of(VICTIM));
    told("user", setuid(0));
    told("namespace", unshare(CLONE_NEWUSER));
    told("clone", syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0));
    told("mount", mount("none", "/", "tmpfs", 0, 0));
    told("root", chroot("/"));
    told("uring", syscall(SYS_io_uring_setup, 1, 0));
    told("later", syscall(467, 0, 0, 0));
    printf(" descriptors=%d\n", strange());
    return 1;
}
