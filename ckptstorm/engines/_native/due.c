/* The schedule of an open-loop program: an op starts when it is due, or as soon after as the one before it lets it.
 *
 * A load that waits for each answer before it asks again asks less often exactly when the storage is slow, and so
 * hides what everybody else would feel. Here the due instants are fixed beforehand. No spinning: the ranks that save
 * need the cores.
 */
#include <sys/prctl.h>

#include "engine.h"

/* A stop is looked for this often. */
enum { NAP_NS = 20000000 };

int64_t until_due_ns(const engine_t *engine, uint64_t index) {
    return engine->due_ns ? engine->lap_began_ns + engine->due_ns[index] - now_ns() : 0;
}

void wait_a_moment(const engine_t *engine, uint64_t index) {
    const int64_t left_ns = until_due_ns(engine, index);
    if (left_ns <= 0) return;
    const int64_t until_ns = left_ns < NAP_NS ? engine->lap_began_ns + engine->due_ns[index] : now_ns() + NAP_NS;
    const struct timespec until = {until_ns / 1000000000, until_ns % 1000000000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

bool wait_until_due(const engine_t *engine, uint64_t index) {
    if (!engine->due_ns) return true;
    if (engine->lap_began_ns + engine->due_ns[index] >= engine->deadline_ns) return false;
    while (until_due_ns(engine, index) > 0) {
        if (is_stop_asked(engine)) return false;
        wait_a_moment(engine, index);
    }
    return true;
}

long sharpen_timers(void) {
    const long slack_ns = prctl(PR_GET_TIMERSLACK);
    prctl(PR_SET_TIMERSLACK, 1UL);
    return slack_ns;
}

void restore_timers(long slack_ns) {
    if (slack_ns > 0) prctl(PR_SET_TIMERSLACK, (unsigned long)slack_ns);
}
