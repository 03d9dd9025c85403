/* Images behind URLs, for hosts that the operator has named. */
#ifndef SERVE_FETCH_H
#define SERVE_FETCH_H

#include "serve/state.h"

bool fetch_available(void);

/* Downloads a URL of at most max_bytes within timeout_s, into memory that is counted in `memory`. Only http and https,
 * only hosts among `host`; a redirect must lead to one of them, outside of private networks. The caller frees
 * *data. Fails with a line in the context. */
cloob_status fetch_url(cloob_ctx *ctx, const serve_options *o, const char *url, size_t max_bytes, long timeout_s,
                       account *memory, unsigned char **data, size_t *bytes);

#endif
