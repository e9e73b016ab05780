"""Histories of concurrent transactions, and a checker that judges them."""
