/* progress: see progress.h. */
#include "peer/cli/progress.h"

#include "base/check.h"
#include "base/units.h"
#include "peer/env/env.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const uint64_t first_ns = NS_PER_S, redraw_ns = NS_PER_S / 5, line_ns = 10 * NS_PER_S;

enum { LINE_BYTES = 160 };

void progress_init(struct progress *progress, const struct options *options)
{
    *progress = (struct progress){
        .log = command_log(options),
        .is_terminal = isatty(STDERR_FILENO) == 1 && !options_flag(options, "quiet"),
    };
}

static double seconds_of(const struct progress *progress)
{
    return (double)(uv_clock_ns() - progress->begin_ns) / 1e9;
}

/* Never wider than the terminal: a line that wraps cannot be written over. */
static void draw(struct progress *progress, const char *line)
{
    struct winsize size = {.ws_col = 0};
    int most = LINE_BYTES;

    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) most = size.ws_col - 1;
    fprintf(stderr, "\r%.*s\033[K", most, line);
    fflush(stderr);
    progress->is_drawn = true;
}

void progress_clear(struct progress *progress)
{
    if (progress->is_drawn) fputs("\r\033[K", stderr);
    progress->is_drawn = false;
}

void progress_tell(struct progress *progress, const char *doing, double share, const char *detail)
{
    const uint64_t now_ns = uv_clock_ns();
    char line[LINE_BYTES], left[32] = "", how_far[32] = "";

    CHECK(doing != NULL && detail != NULL);
    if (progress->doing == NULL || strcmp(progress->doing, doing) != 0) {
        progress_end(progress);
        progress->doing = doing;
        progress->begin_ns = progress->told_ns = now_ns;
    }
    if (share >= 1) {
        progress_end(progress);
        return;
    }
    if (now_ns - progress->begin_ns < (progress->is_terminal ? first_ns : line_ns)) return;
    if (now_ns - progress->told_ns < (progress->is_terminal ? redraw_ns : line_ns)) return;
    progress->told_ns = now_ns;
    if (share > 0) {
        const double seconds = seconds_of(progress) * (1 - share) / share;
        snprintf(how_far, sizeof how_far, "%.0f %%, ", floor(100 * share));
        units_format_seconds(seconds, left, sizeof left);
    } else {
        units_format_seconds(seconds_of(progress), left, sizeof left);
    }
    snprintf(line, sizeof line, "%s: %s%s%s%s%s", doing, how_far, left,
             how_far[0] != '\0' ? " left" : "", detail[0] != '\0' ? ", " : "", detail);
    if (progress->is_terminal)
        draw(progress, line);
    else
        log_info(&progress->log, "%s", line);
}

void progress_end(struct progress *progress)
{
    char took[32];
    const double seconds = progress->doing != NULL ? seconds_of(progress) : 0;

    progress_clear(progress);
    if (seconds >= 1) {
        log_info(&progress->log, "%s: done in %s", progress->doing,
                 units_format_seconds(seconds, took, sizeof took));
    }
    progress->doing = NULL;
}
