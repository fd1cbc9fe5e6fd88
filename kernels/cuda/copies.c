/*
 * Copies of parameters in bfloat16: the weights and biases of dense layers as products read them.
 * The update (optimizer.cu) writes each new value to its copy as well, so that no kernel has to
 * read it once more: it finds them in this table, which lies on the device, in order of where they
 * are copied from, so that a search by halves does.
 */
#include "base/mem.h"
#include "kernels/cuda/internal.h"

#include <stdlib.h>
#include <string.h>

static int by_place(const void *a, const void *b)
{
    const struct parameter_copy *first = a, *second = b;

    if (first->from == second->from) return 0;
    return first->from < second->from ? -1 : 1;
}

enum rc cuda_copies_create(struct backend *backend, const struct parameter_copy *copies,
                           uint32_t count, struct parameter_copies **made)
{
    size_t bytes = count * sizeof(*copies);
    struct parameter_copies *table = mem_alloc(sizeof(*table));
    struct parameter_copy *sorted = mem_array(count, sizeof(*sorted));
    enum rc rc = RC_NOMEM;

    CHECK(count > 0);
    if (table == NULL || sorted == NULL) goto out;
    memcpy(sorted, copies, bytes);
    qsort(sorted, count, sizeof(*sorted), by_place);
    for (uint32_t i = 1; i < count; i++) {
        CHECK(sorted[i - 1].from + sorted[i - 1].count <= sorted[i].from);
    }
    table->count = count;
    table->spans = backend->ops->alloc(backend, bytes);
    if (table->spans == NULL) goto out;
    rc = backend->ops->upload(backend, table->spans, sorted, bytes);
out:
    mem_free(sorted);
    if (rc == RC_OK) {
        *made = table;
    } else if (table != NULL) {
        cuda_copies_destroy(backend, table);
    }
    return rc;
}

void cuda_copies_destroy(struct backend *backend, struct parameter_copies *copies)
{
    if (copies == NULL) return;
    backend->ops->free(backend, copies->spans);
    mem_free(copies);
}
