/* assignment: see assignment.h. Rows are added one by one; columns are numbered from 1, and 0 is
 * the one that the new row holds meanwhile. */
#include "distill/assignment.h"

#include "base/check.h"
#include "base/mem.h"

#include <float.h>
#include <stdbool.h>
#include <string.h>

struct solver {
    const double *gains;
    uint32_t n;
    double *of_row, *of_column; /* potentials: cost - of_row - of_column >= 0, 0 where assigned */
    double *slack;              /* [n + 1]: least reduced cost of a column so far */
    uint32_t *rows;             /* [n + 1]: row + 1 that holds the column; 0: free */
    uint32_t *before;           /* [n + 1]: the column that the path came from */
    bool *is_done;              /* [n + 1] */
};

/* The free column nearest to the new row, which holds column 0. */
static uint32_t find_path(struct solver *s)
{
    uint32_t at = 0;

    memset(s->is_done, 0, (s->n + 1) * sizeof *s->is_done);
    for (uint32_t j = 0; j <= s->n; j++) {
        s->slack[j] = DBL_MAX;
    }
    do {
        const uint32_t row = s->rows[at];
        const double *gains = s->gains + (size_t)(row - 1) * s->n;
        uint32_t next = 0;
        double least = DBL_MAX;
        s->is_done[at] = true;
        for (uint32_t j = 1; j <= s->n; j++) {
            if (s->is_done[j]) continue;
            const double cost = -gains[j - 1] - s->of_row[row] - s->of_column[j];
            if (cost < s->slack[j]) {
                s->slack[j] = cost;
                s->before[j] = at;
            }
            if (s->slack[j] < least) {
                least = s->slack[j];
                next = j;
            }
        }
        CHECK(next != 0); /* gains are finite, so some column is nearest */
        for (uint32_t j = 0; j <= s->n; j++) {
            if (s->is_done[j]) {
                s->of_row[s->rows[j]] += least;
                s->of_column[j] -= least;
            } else {
                s->slack[j] -= least;
            }
        }
        at = next;
    } while (s->rows[at] != 0);
    return at;
}

static void solve(struct solver *s, uint32_t *columns)
{
    for (uint32_t row = 1; row <= s->n; row++) {
        s->rows[0] = row;
        for (uint32_t at = find_path(s); at != 0; at = s->before[at]) {
            s->rows[at] = s->rows[s->before[at]];
        }
    }
    for (uint32_t j = 1; j <= s->n; j++) {
        columns[s->rows[j] - 1] = j - 1;
    }
}

enum rc assignment_solve(const double *gains, uint32_t n, uint32_t *columns)
{
    const size_t count = (size_t)n + 1;
    struct solver s = {.gains = gains,
                       .n = n,
                       .of_row = mem_array(count, sizeof(double)),
                       .of_column = mem_array(count, sizeof(double)),
                       .slack = mem_array(count, sizeof(double)),
                       .rows = mem_array(count, sizeof(uint32_t)),
                       .before = mem_array(count, sizeof(uint32_t)),
                       .is_done = mem_array(count, sizeof(bool))};
    const bool is_short = s.of_row == NULL || s.of_column == NULL || s.slack == NULL ||
                          s.rows == NULL || s.before == NULL || s.is_done == NULL;

    if (!is_short) solve(&s, columns);
    mem_free(s.of_row);
    mem_free(s.of_column);
    mem_free(s.slack);
    mem_free(s.rows);
    mem_free(s.before);
    mem_free(s.is_done);
    return is_short ? RC_NOMEM : RC_OK;
}
