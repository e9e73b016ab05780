/*
 * shell_reader.h
 *		The rows of a shell, as the access method hands them out.
 */
#ifndef STRATA_SHELL_READER_H
#define STRATA_SHELL_READER_H

#include "executor/tuptable.h"
#include "utils/relcache.h"

#include "execute/statement_snapshot.h"

typedef struct ShellReader ShellReader;

/*
 * Start reading all live columns of a shell from its workers.  `clause` follows
 * the table's name in the FROM list ("" for all rows).  A shell without metadata has no rows.
 * Allocated in CurrentMemoryContext, which must live until shell_reader_end().
 */
extern ShellReader *shell_reader_begin(Relation relation, const char *clause);

/*
 * All rows, those beyond a table's last period too, of one table that a worker has of it, under a snapshot of that one: its name
 * there, quoted and qualified.  With the rows' numbers.  `condition`: SQL, or "".
 */
extern ShellReader *shell_reader_begin_part(Relation relation, KeptSnapshot *snapshot,
											const char *part, const char *condition);

/* The number of the row that was read last; of such a part only. */
extern int64 shell_reader_row_number(const ShellReader *reader);

/* Next row into a slot of the shell's row type; false at the end. */
extern bool shell_reader_next(ShellReader *reader, TupleTableSlot *slot);

extern void shell_reader_end(ShellReader *reader);

#endif
