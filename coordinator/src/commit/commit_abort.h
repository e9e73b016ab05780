/*
 * commit_abort.h
 *		The workers' part of an abort; called by commit_protocol_abort() only.
 */
#ifndef STRATA_COMMIT_ABORT_H
#define STRATA_COMMIT_ABORT_H

/* Ends everything on the workers, bounded in time.  Does not throw. */
extern void commit_abort_workers(void);

#endif
