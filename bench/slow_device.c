/* A FUSE file system over a folder, of which every fsync takes a while and does nothing else.
 *
 *     slow_device FOLDER MICROSECONDS MOUNTPOINT [FUSE options]
 *
 * Writes go to the page cache (writeback), as on any file system; what is dirty of a file is handed over before its
 * fsync. As many fsyncs as there are threads wait at the same time, as for one commit of a journal.
 */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

typedef struct fuse_file_info Info;

static char folder[PATH_MAX];
static struct timespec fsync_takes;

static const char *below(char *full, const char *path) {
    snprintf(full, 2 * PATH_MAX, "%s%s", folder, path);
    return full;
}

#define FULL(path) below((char[2 * PATH_MAX]){0}, path)

static int result(int code) { return code < 0 ? -errno : 0; }

/* The kernel reads the rest of a page before it writes a part of it, and knows itself where a file ends. */
static int readable(int flags) {
    int access = (flags & O_ACCMODE) == O_WRONLY ? O_RDWR : flags & O_ACCMODE;
    return (flags & ~(O_ACCMODE | O_APPEND | O_DIRECT)) | access;
}

static int opened(int fd, Info *info) {
    if (fd < 0) return -errno;
    info->fh = (uint64_t)fd;
    return 0;
}

static int get_attributes(const char *path, struct stat *found, Info *info) {
    return result(info ? fstat((int)info->fh, found) : lstat(FULL(path), found));
}

static int make_folder(const char *path, mode_t mode) { return result(mkdir(FULL(path), mode)); }
static int remove_file(const char *path) { return result(unlink(FULL(path))); }
static int remove_folder(const char *path) { return result(rmdir(FULL(path))); }
static int change_mode(const char *path, mode_t mode, Info *info) { (void)info; return result(chmod(FULL(path), mode)); }
static int make_link(const char *from, const char *to) { return result(link(FULL(from), FULL(to))); }
static int get_space(const char *path, struct statvfs *found) { return result(statvfs(FULL(path), found)); }

static int move(const char *from, const char *to, unsigned flags) {
    return flags ? -EINVAL : result(rename(FULL(from), FULL(to)));
}

static int cut(const char *path, off_t size, Info *info) {
    return result(info ? ftruncate((int)info->fh, size) : truncate(FULL(path), size));
}

static int set_times(const char *path, const struct timespec times[2], Info *info) {
    (void)info;
    return result(utimensat(AT_FDCWD, FULL(path), times, AT_SYMLINK_NOFOLLOW));
}

static int open_file(const char *path, Info *info) { return opened(open(FULL(path), readable(info->flags)), info); }

static int make_file(const char *path, mode_t mode, Info *info) {
    return opened(open(FULL(path), readable(info->flags) | O_CREAT, mode), info);
}

static int read_file(const char *path, char *buffer, size_t size, off_t offset, Info *info) {
    (void)path;
    ssize_t count = pread((int)info->fh, buffer, size, offset);
    return count < 0 ? -errno : (int)count;
}

static int write_file(const char *path, const char *buffer, size_t size, off_t offset, Info *info) {
    (void)path;
    ssize_t count = pwrite((int)info->fh, buffer, size, offset);
    return count < 0 ? -errno : (int)count;
}

static int reserve(const char *path, int mode, off_t offset, off_t size, Info *info) {
    (void)path;
    return result(fallocate((int)info->fh, mode, offset, size));
}

static int close_file(const char *path, Info *info) { (void)path; return result(close((int)info->fh)); }

static int wait_for_device(const char *path, int data_only, Info *info) {
    (void)path, (void)data_only, (void)info;
    nanosleep(&fsync_takes, NULL);
    return 0;
}

static int list(const char *path, void *into, fuse_fill_dir_t add, off_t offset, Info *info, enum fuse_readdir_flags how) {
    (void)offset, (void)info, (void)how;
    DIR *opened_folder = opendir(FULL(path));
    if (!opened_folder) return -errno;
    for (struct dirent *entry; (entry = readdir(opened_folder));) add(into, entry->d_name, NULL, 0, 0);
    return result(closedir(opened_folder));
}

static void *begin(struct fuse_conn_info *connection, struct fuse_config *config) {
    connection->want |= connection->capable & FUSE_CAP_WRITEBACK_CACHE;
    config->kernel_cache = 1;
    config->entry_timeout = config->attr_timeout = 1e6; /* nobody else changes anything */
    return NULL;
}

static const struct fuse_operations operations = {
    .init = begin, .getattr = get_attributes, .mkdir = make_folder, .unlink = remove_file, .rmdir = remove_folder,
    .rename = move, .link = make_link, .chmod = change_mode, .truncate = cut, .utimens = set_times, .open = open_file,
    .create = make_file, .read = read_file, .write = write_file, .statfs = get_space, .release = close_file,
    .fsync = wait_for_device, .fsyncdir = wait_for_device, .fallocate = reserve, .readdir = list,
};

int main(int count, char **arguments) {
    if (count < 4 || !realpath(arguments[1], folder)) return 2;
    long microseconds = atol(arguments[2]);
    fsync_takes = (struct timespec){microseconds / 1000000, microseconds % 1000000 * 1000};
    arguments[2] = arguments[0];
    return fuse_main(count - 2, arguments + 2, &operations, NULL);
}
