/* The few calls of a backend that are the same for every device. */
#include "kernels/backend.h"

void backend_destroy(struct backend *backend)
{
    if (backend != NULL) backend->ops->destroy(backend);
}

void backend_bind_thread(struct backend *backend)
{
    backend->ops->bind_thread(backend);
}
