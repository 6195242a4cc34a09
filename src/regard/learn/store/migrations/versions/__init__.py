"""One file a migration. A file that was released is never changed; what comes after is a new one."""
