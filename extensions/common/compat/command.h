/*
 * compat/command.h
 *		Differences between major versions: utility commands: COPY, ALTER, EXPLAIN.
 */
#ifndef STRATA_COMPAT_COMMAND_H
#define STRATA_COMPAT_COMMAND_H

/* COPY ... (ON_ERROR ignore), since 17: was the line just read bad, and to be left out? */
#if PG_VERSION_NUM >= 170000
#define compat_copy_line_is_bad(cstate) \
	((cstate)->opts.on_error == COPY_ON_ERROR_IGNORE && (cstate)->escontext->error_occurred)
#define compat_copy_forget_bad_line(cstate) ((cstate)->escontext->error_occurred = false)
#else
#define compat_copy_line_is_bad(cstate) false
#define compat_copy_forget_bad_line(cstate) ((void) 0)
#endif

/* COPY ... (REJECT_LIMIT n, LOG_VERBOSITY silent), since 18: when bad lines are too many, and whether to tell their number. */
#if PG_VERSION_NUM >= 180000
#define compat_copy_has_too_many_bad_lines(cstate) \
	((cstate)->opts.reject_limit > 0 && (cstate)->num_errors > (cstate)->opts.reject_limit)
#define compat_copy_reject_limit(cstate) ((cstate)->opts.reject_limit)
#define compat_copy_is_silent(cstate) ((cstate)->opts.log_verbosity < COPY_LOG_VERBOSITY_DEFAULT)
#else
#define compat_copy_has_too_many_bad_lines(cstate) false
#define compat_copy_reject_limit(cstate) INT64CONST(0)
#define compat_copy_is_silent(cstate) false
#endif

/*
 * Report how many lines COPY left out as bad: to the progress view, and at the end to the user.  ON_ERROR set_null, of
 * 19, counts lines that it takes.
 */
#if PG_VERSION_NUM >= 170000
#define compat_copy_report_bad_line(cstate) \
	pgstat_progress_update_param(PROGRESS_COPY_TUPLES_SKIPPED, (cstate)->num_errors)
#define compat_copy_bad_lines(cstate) \
	((cstate)->opts.on_error == COPY_ON_ERROR_IGNORE ? (cstate)->num_errors : 0)
#else
#define compat_copy_report_bad_line(cstate) ((void) 0)
#define compat_copy_bad_lines(cstate) ((uint64) 0)
#endif

/* ALTER TABLE ... ALTER COLUMN ... SET EXPRESSION, since 17. */
#if PG_VERSION_NUM >= 170000
#define compat_is_set_expression(part) ((part) == AT_SetExpression)
#else
#define compat_is_set_expression(part) false
#endif

/* ALTER TABLE ... ALTER CONSTRAINT changes more than when a constraint is checked since 18, which has a node for it. */
#if PG_VERSION_NUM >= 180000
#define CompatAlterConstraint ATAlterConstraint
#define compat_alters_deferrability(change) ((change)->alterDeferrability)
#define compat_new_enforcement(change) \
	(!(change)->alterEnforceability ? "" : (change)->is_enforced ? " ENFORCED" : " NOT ENFORCED")
#define compat_new_inheritance(change) \
	(!(change)->alterInheritability ? "" : (change)->noinherit ? " NO INHERIT" : " INHERIT")
#else
#define CompatAlterConstraint Constraint
#define compat_alters_deferrability(change) true
#define compat_new_enforcement(change) ""
#define compat_new_inheritance(change) ""
#endif

/* ALTER ... OWNER TO of an object in one of the simple catalogs; opened by itself since 17. */
#if PG_VERSION_NUM >= 170000
#define compat_alter_owner(catalog, object, owner) \
	AlterObjectOwner_internal(RelationGetRelid(catalog), object, owner)
#else
#define compat_alter_owner(catalog, object, owner) AlterObjectOwner_internal(catalog, object, owner)
#endif

/*
 * CLUSTER is a form of REPACK since 19.  compat_is_repack(): is it a REPACK that is not CLUSTER?  The functions
 * that make new files of a table went with it; compat_finish_heap_swap() rebuilds the indexes.
 */
#if PG_VERSION_NUM >= 190000
#define COMPAT_CLUSTER_HEADER "commands/repack.h"
#define CompatClusterStmt RepackStmt
#define T_CompatClusterStmt T_RepackStmt
#define compat_is_repack(cluster) ((cluster)->command != REPACK_COMMAND_CLUSTER)
#define compat_cluster_relation(cluster) \
	((cluster)->relation == NULL ? NULL : (cluster)->relation->relation)
#define compat_finish_heap_swap(table, files, xid, multi, persistence) \
	finish_heap_swap(table, files, false, false, false, true, true, xid, multi, persistence)
#else
#define COMPAT_CLUSTER_HEADER "commands/cluster.h"
#define CompatClusterStmt ClusterStmt
#define T_CompatClusterStmt T_ClusterStmt
#define compat_is_repack(cluster) false
#define compat_cluster_relation(cluster) ((cluster)->relation)
#define compat_finish_heap_swap(table, files, xid, multi, persistence) \
	finish_heap_swap(table, files, false, false, false, true, xid, multi, persistence)
#endif

/* The functions that print EXPLAIN's lines left commands/explain.h in 18. */
#if PG_VERSION_NUM >= 180000
#include "commands/explain_format.h"
#endif

/* Extensions may have options of EXPLAIN since 18; ours is a boolean one. */
#if PG_VERSION_NUM >= 180000
#include "commands/defrem.h"
#include "commands/explain_state.h"

static inline void
compat_take_explain_option(ExplainState *es, DefElem *option, ParseState *pstate)
{
	static bool on = true;

	SetExplainExtensionState(es, GetExplainExtensionId("strata"),
							 defGetBoolean(option) ? &on : NULL);
}

/* since 19, what auto_explain asks of the value */
#if PG_VERSION_NUM >= 190000
#define compat_explain_add_option(name) \
	RegisterExtensionExplainOption(name, compat_take_explain_option, GUCCheckBooleanExplainOption)
#else
#define compat_explain_add_option(name) \
	RegisterExtensionExplainOption(name, compat_take_explain_option)
#endif
#define compat_explain_has_option(es) \
	(GetExplainExtensionState(es, GetExplainExtensionId("strata")) != NULL)
#else
#define compat_explain_add_option(name) ((void) 0)
#define compat_explain_has_option(es) false
#endif

/* What a node has measured for EXPLAIN ANALYZE; a struct of its own since 19. */
#if PG_VERSION_NUM >= 190000
#define CompatInstrumentation NodeInstrumentation
#else
#define CompatInstrumentation Instrumentation
#endif

/* EXPLAIN (GENERIC_PLAN), since 16: parameters have no values. */
#if PG_VERSION_NUM >= 160000
#define compat_explain_is_generic(es) ((es)->generic)
#else
#define compat_explain_is_generic(es) false
#endif

/* EXPLAIN says of a window function which window it has, by name, since 18; and not that groups are a relation. */
#if PG_VERSION_NUM >= 180000
#define COMPAT_WINDOWS_HAVE_NAMES true
#define compat_explain_names_tables(es) ((es)->verbose || (es)->rtable_size > 1)
#else
#define COMPAT_WINDOWS_HAVE_NAMES false
#define compat_explain_names_tables(es) ((es)->verbose || list_length((es)->rtable) > 1)
#endif

#endif
