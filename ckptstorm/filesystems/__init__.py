"""What a mount is and offers beyond POSIX. An adapter per file system comes here, one file each."""
