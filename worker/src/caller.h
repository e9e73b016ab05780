/*
 * caller.h
 *		As whom the statements of a coordinator run here.
 */
#ifndef STRATA_WORKER_CALLER_H
#define STRATA_WORKER_CALLER_H

#include "nodes/parsenodes.h"

/* What is different while something runs for the coordinator's user, and how it was before. */
typedef struct Scope
{
	Oid user;
	int security_context;
	bool read_only;
	bool for_users;
	int key_queries;
	int settings; /* nesting level; 0: they are kept */
} Scope;

/* A statement or function of users is planned or executed: what it does is watched (users_code.c). */
extern bool caller_runs_for_users;

/* Is the text the message of the coordinator's session?  By its address: nothing inside of it has that text. */
extern bool caller_is_own(const char *text);

/*
 * The caller acts from caller_enter() to caller_leave(), which follows an error, too.  Settings made in a scope for users go
 * back by caller_forget_settings(), or with the transaction that has failed.
 */
extern Scope caller_enter(bool for_users, bool read_only);
extern void caller_forget_settings(const Scope *scope);
extern void caller_leave(Scope before);

/* The session's search_path and other settings of its user, until the settings' nesting level ends. */
extern void caller_use_settings(void);

/* ... and what the coordinator has written is read. */
extern void caller_use_fixed_input(void);

/*
 * A command of the coordinator is executed, which computes what users have written (indexes, constraints,
 * defaults).  SQL inside of it is watched, too.  If an ordinary role gave the command, so is what functions of superusers do
 * that it calls, but for those that keep partial aggregates; if a superuser did, his own code is not.
 */
typedef enum CommandState
{
	COMMAND_NONE,
	COMMAND_SERVICE,	/* it computes nothing of users */
	COMMAND_PRIVILEGED, /* a superuser's, or core's that runs as one */
	COMMAND_ORDINARY
} CommandState;

/* Of a command that is no service, and runs with more rights than its user's or not. */
extern CommandState caller_classify_command(bool privileged);
extern CommandState caller_set_command(CommandState state); /* returns what was before */
extern bool caller_is_watched(void);

/* A function that keeps partial aggregates begins, or has ended, an error included. */
extern void caller_begin_upkeep(void);
extern void caller_end_upkeep(void);

/*
 * Queries of foreign keys, from planning to their end, which core runs as the tables' owners; and what runs inside of them.
 * caller_leave() ends the scope of one, too.
 */
extern bool caller_runs_keys(void);
extern Scope caller_enter_key_query(void);
extern bool caller_is_in_key_query(void);
extern bool caller_is_key_query(void); /* not one inside of it */

/* May a statement of the coordinator be in the parser?  ERROR if so; core's own checks of foreign keys are excepted. */
extern bool caller_is_parsing(void);
extern void caller_check_nothing_is_parsed(void);

/* ERROR if what the parser has run has left other settings than there were. */
extern void caller_check_settings(void);
extern void caller_note_setting(void); /* the coordinator has set one */

/* The transaction ends: its triggers find the schemas that the caller may use. */
extern void caller_end_statements(void);

/* Is it one of the commands to us, whoever gives it?  Execute an own one. */
extern bool caller_is_command(Node *command);
extern void caller_execute(VariableSetStmt *command);

/* The coordinator's command adds constraints, or renames one: none that PostgreSQL has named is in their way. */
extern void constraint_names_free(Node *command); /* constraint_names.c */

extern void caller_initialize(void);		   /* from _PG_init, as the next ones */
extern void own_statement_initialize(void);	   /* own_statement.c */
extern void users_code_initialize(void);	   /* users_code.c */
extern void constraint_names_initialize(void); /* constraint_names.c */

/* ERROR if a utility command of users' code must not run; own_statement.c has the hook. */
extern void users_code_check_command(Node *command);

#endif
