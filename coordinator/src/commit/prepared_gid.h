/*
 * prepared_gid.h
 *		Names of prepared transactions: strata_<cluster id>_<incarnation>_<counter>_<worker id>.
 */
#ifndef STRATA_PREPARED_GID_H
#define STRATA_PREPARED_GID_H

#include "wire/connection.h"

typedef struct PreparedGid
{
	uint64 incarnation;
	uint64 counter;
	int worker_id;
} PreparedGid;

/* The name as text, of at most CONNECTION_GID_SIZE bytes. */
extern void prepared_gid_format(char *buffer, const char *cluster, const PreparedGid *gid);

/*
 * Ask a worker, on an idle wire and outside of a transaction, for all names of this cluster in its
 * database, after it has checked cluster id and epoch: a list of PreparedGid.  Names that
 * begin as ours but cannot be parsed are logged and left out.  ERROR after the deadline.
 */
extern List *prepared_gid_list(WorkerConnection *conn, int64 deadline);

#endif
