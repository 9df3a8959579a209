"""The real framework, under strace, beside what is planned for it."""
