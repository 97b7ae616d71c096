// clock.c: loaded before the libraries of a process (LD_PRELOAD), it shifts the
// wall clock of that process by what a file says at the moment: eight bytes, the
// nanoseconds to add; and eight more, the nanoseconds since the Unix epoch at which it
// stands still, if they are not 0. Monotonic clocks stay as they are.
//
// It calls the kernel itself and allocates nothing, because allocators ask for
// the time before they can serve anybody. Under libfaketime Debian's Redis hangs at its
// start.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t billion = 1000000000;
static const volatile int64_t *shift;

__attribute__((constructor)) static void map_shift(void) {
	const char *path = getenv("REDISTEST_CLOCK");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *at = fd < 0 ? MAP_FAILED : mmap(NULL, 2 * sizeof *shift, PROT_READ, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		abort(); // rather than run with a clock that nobody can set
	close(fd);
	shift = at;
}

int clock_gettime(clockid_t id, struct timespec *t) {
	int err = (int)syscall(SYS_clock_gettime, id, t);
	if (err || !shift || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE))
		return err;
	int64_t held = shift[1];
	int64_t ns = held ? held : t->tv_sec * billion + t->tv_nsec + shift[0];
	t->tv_sec = ns / billion;
	t->tv_nsec = ns % billion;
	return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
	struct timespec t;
	(void)zone; // obsolete
	clock_gettime(CLOCK_REALTIME, &t);
	tv->tv_sec = t.tv_sec;
	tv->tv_usec = t.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *at) {
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	if (at)
		*at = t.tv_sec;
	return t.tv_sec;
}
