package segment

import (
	"os"
	"syscall"
)

// datasync makes what was written to a file durable.
func datasync(file *os.File) error {
	for {
		if err := syscall.Fdatasync(int(file.Fd())); err != syscall.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
