/*
 * transaction_end.c
 *		What happens at the ends of transactions and subtransactions, in order.
 *
 * One callback of each kind is registered with PostgreSQL, which calls callbacks in the reverse order of their
 * registration; here the order is that of the text.  What is to reach the workers comes first: triggers and
 * functions of others have run by then (PRE_COMMIT is the last chance to raise an error), and what an
 * earlier step sends the transaction's workers must commit.
 */
#include "postgres.h"

#include "transaction_end.h"

#include "access/xact.h"

#include "cluster/metadata.h"
#include "commit/in_doubt.h"
#include "ddl/utility.h"
#include "server/launcher.h"
#include "stream/reference_write.h"
#include "stream/remote_ddl.h"
#include "table/index_validity.h"
#include "transaction/constraint_mode.h"
#include "transaction/held_rows.h"
#include "transaction/pending_rows.h"
#include "transaction/remote_transaction.h"
#include "transaction/serializable.h"
#include "transaction/standby_read.h"
#include "wire/connection.h"
#include "wire/session_map.h"
#include "workers/take_over.h"

static void
end_transaction(XactEvent event, void *arg)
{
	utility_transaction_event(event);
	index_validity_transaction_event(event);
	reference_write_transaction_event(event);
	launcher_transaction_event(event);
	serializable_transaction_event(event);
	constraint_mode_transaction_event(event);
	held_rows_transaction_event(event);
	in_doubt_transaction_event(event);
	if (event == XACT_EVENT_PRE_COMMIT)
	{
		pending_rows_flush();
		standby_read_end_statement();
		remote_ddl_advance_version();
	}
	remote_transaction_transaction_event(event);
	standby_read_transaction_event(event);
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT)
		remote_ddl_reset();
	session_map_transaction_event(event);
	connection_open_transaction_event(event);
	take_over_transaction_event(event);
	metadata_transaction_event(event);
}

static void
end_subtransaction(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg)
{
	reference_write_subtransaction_event(event);
	constraint_mode_subtransaction_event(event);
	held_rows_subtransaction_event(event, mine, parent);
	remote_transaction_subtransaction_event(event);
	session_map_subtransaction_event(event);
}

void
transaction_end_initialize(void)
{
	RegisterXactCallback(end_transaction, NULL);
	RegisterSubXactCallback(end_subtransaction, NULL);
}
