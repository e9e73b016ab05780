"""PostgreSQL's own regression and isolation files, statement by statement beside one plain PostgreSQL."""
