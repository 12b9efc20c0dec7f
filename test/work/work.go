// Package work is about the directory .work of the repository, in which tests keep what takes long to make. Several
// processes can use it at once.
package work

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/deltabridge/deltabridge/test/poll"
)

var module = regexp.MustCompile(`(?m)^module github\.com/deltabridge/deltabridge$`)

// Repository returns the root of the repository around the working directory. A test runs in the directory of its
// package, a command usually in the root.
func Repository() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		gomod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && module.Match(gomod) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not in the repository, whose sources are required", start)
		}
	}
}

// Dir returns the directory .work/NAME of the repository, and creates it.
func Dir(name string) (string, error) {
	root, err := Repository()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, ".work", name)
	return dir, os.MkdirAll(dir, 0o755)
}

const (
	lockInterval = 200 * time.Millisecond
	lockTimeout  = time.Hour // a build takes minutes
)

// Lock waits until no other process has the lock file, and calls waiting after each ten seconds. The lock ends with
// unlock or the process.
func Lock(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	said := time.Now()
	err = poll.Until(ctx, lockInterval, lockTimeout, func() error {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) {
			return poll.Permanent(err)
		}
		if err != nil && time.Since(said) > 10*time.Second {
			said = time.Now()
			waiting()
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
	return func() { _ = file.Close() }, nil
}
